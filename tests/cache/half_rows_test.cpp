#include "cache/half_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace walsh {
namespace {

TEST(HalfRows, HoldTheLargestNumberInPlaceOfWhatIsBeyondIt) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x{1.5f,  -2.0f,     65504.0f,   65519.0f, 65520.0f, 1e30f,
                             -7e4f, kInfinity, -kInfinity, 0.0f,     -0.0f,    6e-8f};
  const std::vector<float> expected{1.5f,      -2.0f,    65504.0f,  65504.0f, 65504.0f, 65504.0f,
                                    -65504.0f, 65504.0f, -65504.0f, 0.0f,     -0.0f,    0x1p-24f};
  for (const Isa isa : {Isa::ref, current_isa()}) {
    std::vector<uint16_t> halves(x.size());
    store_half_row(ops(isa), x.data(), static_cast<int64_t>(x.size()), halves.data());
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_EQ(f16_to_f32(halves[i]), expected[i]) << x[i];
  }
}

TEST(HalfRows, KeepWhatIsNotANumber) {
  const float nan = std::nanf("");
  uint16_t half = 0;
  store_half_row(ops(), &nan, 1, &half);
  EXPECT_TRUE(std::isnan(f16_to_f32(half)));
}

}  // namespace
}  // namespace walsh
