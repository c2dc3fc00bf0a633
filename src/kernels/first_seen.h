// The positions that a query of attention sees.
#pragma once

#include <algorithm>
#include <cstdint>

namespace walsh {

// The first visible position. window > 0: sliding window of that many positions; window < 0: the
// chunk of -window positions that contains the query; 0: all positions.
inline int64_t first_seen(int64_t window, int64_t position) {
  if (window < 0) return position - position % -window;
  return window > 0 ? std::max<int64_t>(0, position + 1 - window) : 0;
}

}  // namespace walsh
