#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/aligned.h"
#include "base/checked.h"
#include "base/cpu.h"
#include "base/half.h"
#include "base/random.h"

namespace walsh {
namespace {

TEST(Checked, OverflowIsAnError) {
  EXPECT_EQ(checked_mul(1u << 20, 1u << 20, "x"), uint64_t{1} << 40);
  EXPECT_THROW(checked_mul(UINT64_MAX, 2, "x"), Error);
  EXPECT_THROW(checked_add(UINT64_MAX, 1, "x"), Error);
  EXPECT_THROW(checked_align(UINT64_MAX - 3, 64, "x"), Error);
  EXPECT_EQ(checked_align(65, 64, "x"), 128u);
  EXPECT_EQ(narrow<int32_t>(uint64_t{5}, "x"), 5);
  EXPECT_THROW(narrow<int32_t>(uint64_t{1} << 31, "x"), Error);
  EXPECT_THROW(narrow<uint32_t>(int64_t{-1}, "x"), Error);
}

TEST(Half, EveryF16RoundTrips) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float f = f16_to_f32(static_cast<uint16_t>(h));
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(f))));
    } else {
      ASSERT_EQ(f32_to_f16(f), h) << h;
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  for (uint32_t h = 0; h < 0x7bff; ++h) {  // the midpoint of two neighbours goes to the even one
    const float a = f16_to_f32(static_cast<uint16_t>(h));
    const float b = f16_to_f32(static_cast<uint16_t>(h + 1));
    const float mid = a + (b - a) / 2;
    ASSERT_EQ(f32_to_f16(mid), h % 2 == 0 ? h : h + 1) << h;
    ASSERT_EQ(f32_to_f16(std::nextafter(mid, 0.0f)), h);
    ASSERT_EQ(f32_to_f16(std::nextafter(mid, 1e9f)), h + 1);
  }
  EXPECT_EQ(f32_to_f16(65519.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_bf16(1.00390625f), 0x3f80);  // a tie goes to even
  EXPECT_EQ(f32_to_bf16(1.01171875f), 0x3f82);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::nanf("")))));
}

TEST(Cpu, RefIsAlwaysThereAndUnknownNamesAreRefused) {
  EXPECT_EQ(supported_isas().front(), Isa::ref);
  EXPECT_THROW(force_isa("sse9"), Error);
  force_isa("ref");
  EXPECT_EQ(current_isa(), Isa::ref);
  force_isa("");
}

TEST(Random, IsStandardNormal) {
  Random r(7);
  double sum = 0, squares = 0;
  constexpr int n = 100000;
  for (int i = 0; i < n; ++i) {
    const double x = r.normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / n, 0, 0.02);
  EXPECT_NEAR(squares / n, 1, 0.02);
}

TEST(AlignedArray, IsAlignedZeroedAndRefusesTheImpossible) {
  AlignedArray<float> a(17);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 64, 0u);
  for (float v : a)
    EXPECT_EQ(v, 0.0f);
  EXPECT_THROW(AlignedArray<double>(std::numeric_limits<size_t>::max() / 4), Error);
}

}  // namespace
}  // namespace walsh
