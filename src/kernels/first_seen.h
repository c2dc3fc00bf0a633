// Which positions a query of attention sees.
#pragma once

#include <algorithm>
#include <cstdint>

namespace walsh {

// The first position that a query sees: of the last `window` ones; of its chunk of -window
// positions if that is negative; 0 if it is 0.
inline int64_t first_seen(int64_t window, int64_t position) {
  if (window < 0) return position - position % -window;
  return window > 0 ? std::max<int64_t>(0, position + 1 - window) : 0;
}

}  // namespace walsh
