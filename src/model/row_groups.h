// Divides the rows of a batch into calls of attention.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/executor.h"

namespace walsh {

// One call of attention computes these consecutive rows: single tokens of several sequences, or one
// run of several rows.
struct RowGroup {
  size_t run = 0;     // the first run
  int64_t first = 0;  // first row in the batch
  int64_t rows = 0;
  int64_t longest = 0;  // positions of its longest sequence
  bool single = false;  // whether every run has one row

  int64_t end() const { return first + rows; }
};

// Groups all rows of the batch, in order.
std::vector<RowGroup> group_rows(std::span<const Run> runs);

}  // namespace walsh
