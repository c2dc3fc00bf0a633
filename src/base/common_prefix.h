#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace walsh {

// Returns how many tokens the beginnings of a and b have in common.
inline int64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

}  // namespace walsh
