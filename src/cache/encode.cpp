#include "cache/encode.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/half.h"
#include "codec/scalar/encoder.h"
#include "codec/tensor.h"

namespace walsh {
namespace {

constexpr int64_t kGroup = 32;  // Types with largest_scale have groups of this size.

// Encodes a group of TQ3_0. The largest value becomes the largest level, two bits select the
// nearest of four levels, and the third bit is the sign of the remainder.
uint16_t encode_largest(const float* x, int64_t n, const ScalarCode& code, uint8_t* codes) {
  float largest = 0;
  for (int64_t i = 0; i < n; ++i)
    largest = std::max(largest, std::fabs(x[i]));
  const float top = code.levels[7];
  const uint16_t half = f32_to_f16(std::min(largest / top, kLargestHalf));
  const float scale = f16_to_f32(half);
  for (int64_t i = 0; i < n; ++i) {
    const float value = scale > 0 ? x[i] / scale : 0;
    int nearest = 0;
    for (int level = 1; level < 4; ++level) {
      if (std::fabs(value - code.levels[2 * level]) < std::fabs(value - code.levels[2 * nearest]))
        nearest = level;
    }
    codes[i] = static_cast<uint8_t>(2 * nearest + (value > code.levels[2 * nearest] ? 1 : 0));
  }
  return half;
}

void encode_largest_rows(const ScalarCode& code, const float* x, int64_t count, std::byte* codes,
                         uint16_t* scales) {
  for (int64_t i = 0; i < count; i += kGroup) {
    uint8_t group[kGroup];
    scales[i / kGroup] = encode_largest(x + i, kGroup, code, group);
    pack_codes(code, group, kGroup, codes + code_bytes_per_row(code, i));
  }
}

}  // namespace

void encode_cache_rows(const CacheType& type, float* x, int64_t rows, int64_t padded,
                       std::byte* codes, uint16_t* scales) {
  const auto finite = [&](int64_t row) {
    const float* begin = x + row * padded;
    return std::all_of(begin, begin + padded, [](float v) { return std::isfinite(v); });
  };
  std::vector<int64_t> broken;
  for (int64_t row = 0; row < rows; ++row) {
    if (finite(row)) continue;
    broken.push_back(row);
    std::fill_n(x + row * padded, padded, 0.0f);
  }
  if (type.largest_scale) {
    encode_largest_rows(type.code, x, rows * padded, codes, scales);
  } else {
    encode_rows(type.code, {Effort::fast, ScaleRule::search}, x, rows, padded,
                {codes, scales, nullptr, nullptr});
  }
  const int64_t groups = groups_per_row(type.code, padded);
  for (const int64_t row : broken)
    std::fill_n(scales + row * groups, groups, kHalfNan);
}

}  // namespace walsh
