#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "kernels/ops.h"

namespace walsh {
namespace {

constexpr int64_t kSizes[] = {1, 2, 17, 31, 33, 384, 1056, 1376};

AlignedArray<float> random_floats(int64_t n, uint64_t seed, double size = 1) {
  AlignedArray<float> a(static_cast<size_t>(n));
  Random random(seed);
  for (float& v : a)
    v = static_cast<float>(size * random.normal());
  return a;
}

TEST(RmsNorm, AgreesWithTheFormula) {
  for (const Isa isa : supported_isas()) {
    for (const int64_t n : kSizes) {
      for (const double size : {1e-12, 1.0, 1e15, 1e25}) {
        const auto x = random_floats(n, 1, size), gain = random_floats(n, 2);
        AlignedArray<float> out(x.size());
        ops(isa).rms_norm(x.data(), gain.data(), n, 1e-6f, out.data());
        long double sum = 0;
        for (const float v : x)
          sum += static_cast<long double>(v) * v;
        const long double inverse = 1 / std::sqrt(sum / n + 1e-6f);
        for (size_t i = 0; i < x.size(); ++i) {
          const auto expected = static_cast<double>(x[i] * inverse * gain[i]);
          // There are three roundings of half a unit each.
          ASSERT_NEAR(out[i], expected, 2e-7 * std::abs(expected) + 1e-44)
              << isa_name(isa) << " n " << n << " at " << i;
        }
      }
    }
  }
}

TEST(RmsNorm, WorksInPlaceAndKeepsZero) {
  for (const Isa isa : supported_isas()) {
    auto x = random_floats(33, 3);
    const auto gain = random_floats(33, 4);
    AlignedArray<float> expected(33), zero(33);
    ops(isa).rms_norm(x.data(), gain.data(), 33, 1e-5f, expected.data());
    ops(isa).rms_norm(x.data(), gain.data(), 33, 1e-5f, x.data());
    ops(isa).rms_norm(zero.data(), gain.data(), 33, 1e-5f, zero.data());
    for (size_t i = 0; i < 33; ++i) {
      EXPECT_EQ(x[i], expected[i]);
      EXPECT_EQ(zero[i], 0.0f);
    }
  }
}

TEST(RmsNorm, WritesNothingBeyondTheEnd) {
  for (const Isa isa : supported_isas()) {
    const auto x = random_floats(64, 5);
    AlignedArray<float> out(64);
    for (float& v : out)
      v = 7;
    ops(isa).rms_norm(x.data(), x.data(), 17, 1e-5f, out.data());
    for (size_t i = 17; i < 64; ++i)
      EXPECT_EQ(out[i], 7.0f);
  }
}

TEST(SiluMul, AgreesWithTheFormula) {
  for (const Isa isa : supported_isas()) {
    for (const int64_t n : kSizes) {
      auto gate = random_floats(n, 6, 20), up = random_floats(n, 7);
      AlignedArray<float> out(gate.size());
      ops(isa).silu_mul(gate.data(), up.data(), n, out.data());
      for (size_t i = 0; i < gate.size(); ++i) {
        const double g = gate[i], expected = g / (1 + std::exp(-g)) * up[i];
        ASSERT_NEAR(out[i], expected, 1e-6 * std::abs(expected) + 1e-35)
            << isa_name(isa) << " gate " << g;
      }
      ops(isa).silu_mul(gate.data(), up.data(), n, up.data());
      for (size_t i = 0; i < gate.size(); ++i)
        ASSERT_EQ(up[i], out[i]);
    }
  }
}

TEST(SiluMul, IsFiniteForHugeInputs) {
  const float huge[] = {-3e38f, -1000, -104, -89, -88, -87, 0, 87, 88, 89, 104, 1000, 3e38f};
  constexpr int kCount = 13;
  AlignedArray<float> gate(kCount), up(kCount), out(kCount);
  for (size_t i = 0; i < kCount; ++i)
    gate[i] = huge[i], up[i] = 1;
  for (const Isa isa : supported_isas()) {
    ops(isa).silu_mul(gate.data(), up.data(), kCount, out.data());
    for (size_t i = 0; i < kCount; ++i) {
      const double g = gate[i];
      // e^88 is as far as float32 goes: what is left of -3e38 is then 2, of -1000 6e-36.
      const double cut = g < -88 ? std::abs(g) * 6.1e-39 : 0;
      EXPECT_NEAR(out[i], g / (1 + std::exp(-g)), cut + 1e-6 * std::abs(g)) << isa_name(isa);
      EXPECT_TRUE(std::isfinite(out[i]));
    }
  }
}

TEST(Rope, RotatesPairsHalfAHeadApart) {
  for (const int head_dim : {2, 6, 8, 16, 32, 64, 80, 96, 112, 128, 256}) {
    const int heads = 3, half = head_dim / 2;
    const auto x = random_floats(heads * head_dim, 8);
    AlignedArray<float> cos(static_cast<size_t>(half)), sin(static_cast<size_t>(half));
    for (int i = 0; i < half; ++i) {
      const double angle = 37 * std::pow(10000.0, -2.0 * i / head_dim);
      cos[static_cast<size_t>(i)] = static_cast<float>(std::cos(angle));
      sin[static_cast<size_t>(i)] = static_cast<float>(std::sin(angle));
    }
    AlignedArray<float> reference;
    for (const Isa isa : supported_isas()) {
      AlignedArray<float> y(x.size());
      std::copy(x.begin(), x.end(), y.begin());
      ops(isa).rope(y.data(), heads, head_dim, head_dim, cos.data(), sin.data());
      for (int h = 0; h < heads; ++h) {
        for (int i = 0; i < half; ++i) {
          const auto a = static_cast<size_t>(h * head_dim + i), b = a + static_cast<size_t>(half);
          const double c = cos[static_cast<size_t>(i)], s = sin[static_cast<size_t>(i)];
          ASSERT_NEAR(y[a], x[a] * c - x[b] * s, 1e-6) << isa_name(isa);
          ASSERT_NEAR(y[b], x[b] * c + x[a] * s, 1e-6) << isa_name(isa);
        }
      }
      if (isa == Isa::ref) {
        reference = std::move(y);
      } else {
        for (size_t i = 0; i < y.size(); ++i)
          ASSERT_EQ(y[i], reference[i]) << isa_name(isa);
      }
    }
  }
}

TEST(ToF16, IsExactForEveryHalfAndEveryTie) {
  std::vector<float> values;
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float v = f16_to_f32(static_cast<uint16_t>(h));
    if (std::isnan(v)) continue;
    values.push_back(v);
    const float next = f16_to_f32(static_cast<uint16_t>(h + 1));
    if (std::isfinite(v) && std::isfinite(next)) {
      const float tie = (v + next) / 2;
      values.push_back(tie);
      values.push_back(std::nextafter(tie, -1e9f));
      values.push_back(std::nextafter(tie, 1e9f));
    }
  }
  for (const float v : {65519.9f, 65520.0f, 1e30f, -1e30f, 1e-30f, -1e-30f})
    values.push_back(v);
  for (const Isa isa : supported_isas()) {
    std::vector<uint16_t> out(values.size() + 1, 0xbeef);
    ops(isa).to_f16(values.data(), static_cast<int64_t>(values.size()), out.data());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(out[i], f32_to_f16(values[i])) << isa_name(isa) << " " << values[i];
    }
    EXPECT_EQ(out.back(), 0xbeef);
  }
}

// x is not aligned to more than a float, as a slice of a larger row may be.
TEST(ToF16, HandlesEveryLength) {
  const auto x = random_floats(64, 9);
  for (const Isa isa : supported_isas()) {
    for (int64_t n = 0; n < 40; ++n) {
      std::vector<uint16_t> out(64, 0xbeef);
      ops(isa).to_f16(x.data() + 1, n, out.data());
      for (size_t i = 0; i < 64; ++i) {
        EXPECT_EQ(out[i], static_cast<int64_t>(i) < n ? f32_to_f16(x[i + 1]) : 0xbeef);
      }
    }
  }
}

TEST(PrepareInput, NormalizesPadsAndRotates) {
  constexpr int64_t kWidth = 70, kCols = 96;
  const auto x = random_floats(kWidth, 10), gain = random_floats(kWidth, 11);
  const Rotator rotator(Rotation{}, kCols);
  for (const Isa isa : supported_isas()) {
    AlignedArray<float> expected(kCols), row(kCols);
    for (float& v : row)
      v = 5;
    ops(isa).rms_norm(x.data(), gain.data(), kWidth, 1e-5f, expected.data());
    rotator.apply(expected.data());
    ActivationsI8 planes(2, kCols, kActivationGroup, 1), expected_planes(2, kCols, 128, 1);
    ops(isa).quantize_i8(expected.data(), expected_planes, 1);
    prepare_input(ops(isa), {&rotator, kWidth, kCols}, x.data(), gain.data(), 1e-5f, row.data(),
                  &planes, 1);
    for (size_t i = 0; i < kCols; ++i) {
      ASSERT_EQ(row[i], expected[i]);
      ASSERT_EQ(planes.q[kCols + i], expected_planes.q[kCols + i]);
      ASSERT_EQ(planes.q[i], 0);
    }
    prepare_input(ops(isa), {nullptr, kWidth, kCols}, x.data(), nullptr, 0, row.data(), nullptr, 0);
    for (size_t i = 0; i < kCols; ++i)
      ASSERT_EQ(row[i], i < kWidth ? x[i] : 0.0f);
  }
}

}  // namespace
}  // namespace walsh
