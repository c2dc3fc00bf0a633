#include "quantize/source/mxfp4.h"

#include <array>
#include <cmath>
#include <limits>

#include "base/half.h"

namespace walsh {
namespace {

constexpr std::array<float, 16> kValues = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                           -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
constexpr int kBias = 127, kNotANumber = 255;

}  // namespace

void decode_mxfp4(const std::byte* codes, const std::byte* scales, int64_t cols, uint16_t* out) {
  for (int64_t block = 0; block < cols / kMxfp4Block; ++block) {
    const auto exponent = std::to_integer<int>(scales[block]);
    const float scale = exponent == kNotANumber ? std::numeric_limits<float>::quiet_NaN()
                                                : std::ldexp(1.0f, exponent - kBias);
    std::array<uint16_t, 16> values;
    for (size_t code = 0; code < values.size(); ++code)
      values[code] = f32_to_bf16(kValues[code] * scale);
    for (int64_t i = 0; i < kMxfp4BlockBytes; ++i) {
      const auto pair = std::to_integer<unsigned>(codes[block * kMxfp4BlockBytes + i]);
      *out++ = values[pair & 0xf];
      *out++ = values[pair >> 4];
    }
  }
}

}  // namespace walsh
