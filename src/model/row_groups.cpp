#include "model/row_groups.h"

#include <algorithm>

namespace walsh {

std::vector<RowGroup> group_rows(std::span<const Run> runs) {
  std::vector<RowGroup> groups;
  int64_t row = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    const bool single = runs[i].rows == 1;
    const int64_t end = runs[i].position + runs[i].rows;
    if (single && !groups.empty() && groups.back().single) {
      ++groups.back().rows;
      groups.back().longest = std::max(groups.back().longest, end);
    } else {
      groups.push_back({i, row, runs[i].rows, end, single});
    }
    row += runs[i].rows;
  }
  return groups;
}

}  // namespace walsh
