// Divides the rows of a batch into groups, each of which is one call of attention.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/executor.h"

namespace walsh {

// Describes consecutive rows that one call of attention computes: single tokens of several
// sequences, or one run of several rows.
struct RowGroup {
  size_t run = 0;     // This is the first run of the group.
  int64_t first = 0;  // This is the first row in the batch.
  int64_t rows = 0;
  int64_t longest = 0;  // Its longest sequence has this many positions.
  bool single = false;  // If true, every run has one row.

  int64_t end() const { return first + rows; }
};

// Groups all rows of the batch, in order.
std::vector<RowGroup> group_rows(std::span<const Run> runs);

}  // namespace walsh
