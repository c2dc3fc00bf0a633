// Divides the rows of a batch into calls of attention.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/executor.h"

namespace walsh {

// Consecutive rows that one call of attention computes: single tokens, or one run of several rows.
struct RowGroup {
  size_t run = 0;     // the first run
  int64_t first = 0;  // first row in the batch
  int64_t rows = 0;
  int64_t longest = 0;  // positions of its longest sequence
  bool single = false;  // whether every row is a group of its own, as single tokens are

  int64_t end() const { return first + rows; }
};

// Whether a run counts as single tokens: its logits are all wanted, and it has `apart` rows at
// most. Several of one sequence are those of a draft.
bool is_apart(const Run& run, int64_t apart);

// Groups all rows of the batch, in order.
std::vector<RowGroup> group_rows(std::span<const Run> runs, int64_t apart = 1);

}  // namespace walsh
