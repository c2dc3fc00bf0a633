// Makes random fp16 arrays as coded tensors store them, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "base/random.h"

namespace walsh::test {

// Returns `count` values from low to high; one in sixteen is zero.
inline std::vector<std::byte> random_halves(int64_t count, Random& random, double low,
                                            double high) {
  std::vector<std::byte> out(static_cast<size_t>(count) * 2);
  for (int64_t i = 0; i < count; ++i) {
    const double v = low + (high - low) * random.uniform();
    const uint16_t half = f32_to_f16(static_cast<float>(random.below(16) ? v : 0.0));
    std::memcpy(out.data() + i * 2, &half, 2);
  }
  return out;
}

}  // namespace walsh::test
