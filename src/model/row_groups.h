// How the rows of a batch share calls of attention.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/executor.h"

namespace walsh {

// Neighbouring rows whose attention is one call: single tokens of several sequences, or a run of
// several rows.
struct RowGroup {
  size_t run = 0;     // the first one
  int64_t first = 0;  // row of the batch
  int64_t rows = 0;
  int64_t longest = 0;  // positions of its longest sequence
  bool single = false;  // every run is one row

  int64_t end() const { return first + rows; }
};

// All rows of the batch, in their order.
std::vector<RowGroup> group_rows(std::span<const Run> runs);

}  // namespace walsh
