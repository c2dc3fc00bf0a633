#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "gemv_data.h"
#include "kernels/cuda/gemv/gemv.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

struct Case {
  int64_t width;
  int group, planes;
  Rotation rotation;
};

Rotation no_rotation() {
  return {.kind = RotationKind::none};
}

// Returns the CPU's int8 planes of m rows.
ActivationsI8 quantize_on_cpu(const std::vector<float>& x, int64_t m, const Case& c) {
  const int64_t padded = divide_up(c.width, 32) * 32;
  ActivationsI8 out(m, padded, c.group, c.planes);
  const Rotator rotator(c.rotation, padded);
  AlignedArray<float> row(static_cast<size_t>(padded));
  for (int64_t t = 0; t < m; ++t) {
    InputTransform transform{&rotator, c.width, padded};
    prepare_input(ops(), transform, x.data() + t * c.width, nullptr, 0, row.data(), &out, t);
  }
  return out;
}

void expect_cpu_bits(const std::vector<float>& x, int64_t m, const Case& c) {
  SCOPED_TRACE(testing::Message() << "width " << c.width << " group " << c.group << " planes "
                                  << c.planes << " block " << c.rotation.block);
  const DeviceInputs expected(quantize_on_cpu(x, m, c), m);
  const int64_t cols = divide_up(c.width, kPaddedColumns) * kPaddedColumns;
  Activations out(m, cols, c.group, c.planes);
  const Buffer rows = to_device(x);
  InputSource source;
  source.x = rows.as<float>();
  source.ldx = source.width = c.width;
  InputForm form;
  form.rotation = c.rotation;
  form.padded = divide_up(c.width, 32) * 32;
  form.out = &out;
  prepare(source, {&form, 1}, m, nullptr);
  ASSERT_EQ(to_host<int8_t>(out.q), expected.q);
  ASSERT_EQ(to_host<int32_t>(out.sums), expected.sums);
  const std::vector<float> scales = to_host<float>(out.scales);
  for (size_t i = 0; i < scales.size(); ++i) {
    if (std::isnan(expected.scales[i])) {
      ASSERT_TRUE(std::isnan(scales[i])) << i;
    } else {
      ASSERT_EQ(scales[i], expected.scales[i]) << i;
    }
  }
}

TEST(GpuPrepare, QuantizesToTheBitsOfTheCpu) {
  WALSH_NEED_GPU();
  for (const int64_t width : {32, 96, 256, 384, 1376, 4096}) {
    for (const int group : {32, 128}) {
      for (const int planes : {1, 2}) {
        const double size = width == 96 ? 1e-33 : width == 384 ? 1e30 : 1;
        expect_cpu_bits(random_values(3 * width, 5, size), 3,
                        {width, group, planes, no_rotation()});
      }
    }
  }
}

TEST(GpuPrepare, QuantizesZeroTinyAndUnusualGroupsAsTheCpu) {
  WALSH_NEED_GPU();
  constexpr int64_t kWidth = 1024;
  std::vector<float> x = random_values(kWidth, 6);
  std::fill_n(x.begin(), 128, 0.0f);
  std::fill_n(x.begin() + 128, 128, 1e-31f);
  x[300] = std::numeric_limits<float>::infinity();
  x[400] = std::numeric_limits<float>::quiet_NaN();
  x[600] = -1e38f;
  for (const int group : {32, 128}) {
    for (const int planes : {1, 2})
      expect_cpu_bits(x, 1, {kWidth, group, planes, no_rotation()});
  }
}

TEST(GpuPrepare, RotatesToTheBitsOfTheCpu) {
  WALSH_NEED_GPU();
  for (const int64_t width : {32, 96, 288, 896, 1376, 4864, 8192}) {
    for (const int block : {32, 64, 128, 256, 512, 1024}) {
      Rotation rotation{.block = block, .seed = 7u + static_cast<uint32_t>(block)};
      rotation.signs = block != 64;
      expect_cpu_bits(random_values(2 * width, 8), 2, {width, 128, block == 256 ? 2 : 1, rotation});
    }
  }
}

TEST(GpuPrepare, PadsRowsThatAreNoMultipleOf32) {
  WALSH_NEED_GPU();
  for (const int64_t width : {1, 70, 301, 1000}) {
    expect_cpu_bits(random_values(width, 9), 1, {width, 128, 1, Rotation{.block = 128}});
    expect_cpu_bits(random_values(width, 9), 1, {width, 32, 1, no_rotation()});
  }
}

double gated(GateFunction function, double x) {
  if (function == GateFunction::silu) return x / (1 + std::exp(-x));
  constexpr double kSlope = 0.7978845608028654;  // sqrt(2 / pi)
  return x / (1 + std::exp(-2 * kSlope * (x + 0.044715 * x * x * x)));
}

// Computes function(x) * up, then the norm, in double.
std::vector<double> source_in_double(const std::vector<float>& x, const std::vector<float>& up,
                                     GateFunction function, const std::vector<float>& gain,
                                     double eps, int64_t width) {
  std::vector<double> v(x.begin(), x.end());
  for (size_t i = 0; !up.empty() && i < v.size(); ++i)
    v[i] = gated(function, v[i]) * up[i];
  for (size_t begin = 0; !gain.empty() && begin < v.size(); begin += static_cast<size_t>(width)) {
    double sum = 0;
    for (size_t i = 0; i < static_cast<size_t>(width); ++i)
      sum += v[begin + i] * v[begin + i];
    const double inverse = 1 / std::sqrt(sum / static_cast<double>(width) + eps);
    for (size_t i = 0; i < static_cast<size_t>(width); ++i)
      v[begin + i] *= inverse * gain[i];
  }
  return v;
}

TEST(GpuPrepare, NormalizesAndGatesFloatRows) {
  WALSH_NEED_GPU();
  constexpr int64_t kM = 3;
  for (const int64_t width : {64, 301, 1376, 8192}) {
    for (const bool gated : {false, true}) {
      for (const bool normed : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << "width " << width << ", gated " << gated << ", normed " << normed);
        const auto x = random_values(kM * width, 10, 3);
        const auto up = gated ? random_values(kM * width, 11) : std::vector<float>{};
        const auto gain = normed ? random_values(width, 12) : std::vector<float>{};
        const Buffer dx = to_device(x), dup = to_device(up), dgain = to_device(gain);
        Buffer out(static_cast<uint64_t>(kM * width) * sizeof(float));
        InputSource source{dx.as<float>(), dup.as<float>(), dgain.as<float>(), 1e-5f, width, width};
        InputForm form;
        form.rotation = no_rotation();
        form.padded = form.stride = width;
        form.rows = out.as();
        prepare(source, {&form, 1}, kM, nullptr);
        const auto expected = source_in_double(x, up, source.function, gain, 1e-5f, width);
        const auto got = to_host<float>(out);
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], expected[i], 1e-6 * (std::abs(expected[i]) + 1e-3)) << i;
        if (width % 512 != 0) continue;
        form.rotation = Rotation{.block = 512};  // it keeps lengths
        prepare(source, {&form, 1}, kM, nullptr);
        const auto rotated = to_host<float>(out);
        for (size_t begin = 0; begin < rotated.size(); begin += static_cast<size_t>(width)) {
          double squares = 0, expected_squares = 0;
          for (size_t i = begin; i < begin + static_cast<size_t>(width); ++i) {
            squares += double{rotated[i]} * rotated[i];
            expected_squares += expected[i] * expected[i];
          }
          EXPECT_NEAR(squares / expected_squares, 1, 1e-5);
        }
      }
    }
  }
}

TEST(GpuPrepare, GatesByGeluAsTheCpu) {
  WALSH_NEED_GPU();
  for (const int64_t width : {8, 64, 301, 1376}) {
    std::vector<float> x = random_values(2 * width, 16, 3);
    const std::vector<float> up = random_values(2 * width, 17);
    const float unusual[] = {0.0f, -0.0f, 1e30f, -1e30f, 1e-30f, -12.0f, 20.0f};
    std::copy(std::begin(unusual), std::end(unusual), x.begin());
    const Buffer dx = to_device(x), dup = to_device(up);
    Buffer out(static_cast<uint64_t>(2 * width) * sizeof(float));
    InputSource source{dx.as<float>(), dup.as<float>(), nullptr, 0, width, width};
    source.function = GateFunction::gelu_tanh;
    InputForm form;
    form.rotation = no_rotation();
    form.padded = form.stride = width;
    form.rows = out.as();
    prepare(source, {&form, 1}, 2, nullptr);
    std::vector<float> cpu(x.size());
    ops(Isa::ref).gelu_mul(x.data(), up.data(), 2 * width, cpu.data());
    const auto expected = source_in_double(x, up, source.function, {}, 0, width);
    const auto got = to_host<float>(out);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], 3e-6 * (std::abs(expected[i]) + 1e-3)) << x[i];
      ASSERT_NEAR(got[i], cpu[i], 3e-6 * (std::abs(cpu[i]) + 1)) << x[i];
    }
  }
}

TEST(GpuPrepare, GatesByReluAsTheCpu) {
  WALSH_NEED_GPU();
  for (const int64_t width : {8, 301, 1376}) {
    std::vector<float> x = random_values(2 * width, 16, 3);
    const float unusual[] = {0.0f, -0.0f, 1e30f, -1e30f, 1e-30f};
    std::copy(std::begin(unusual), std::end(unusual), x.begin());
    const Buffer dx = to_device(x);
    Buffer out(static_cast<uint64_t>(2 * width) * sizeof(float));
    InputSource source{dx.as<float>(), dx.as<float>(), nullptr, 0, width, width};  // relu(x)^2
    source.function = GateFunction::relu;
    InputForm form;
    form.rotation = no_rotation();
    form.padded = form.stride = width;
    form.rows = out.as();
    prepare(source, {&form, 1}, 2, nullptr);
    std::vector<float> expected;
    for (const float value : x)
      expected.push_back(std::max(value, 0.0f) * value);
    EXPECT_EQ(to_host<float>(out), expected);
  }
}

TEST(GpuPrepare, SumsSquaresOfLargeValuesWithoutOverflow) {
  WALSH_NEED_GPU();
  constexpr int64_t kWidth = 512;
  const Buffer x = to_device(random_values(kWidth, 13, 1e30)),
               gain = to_device(std::vector<float>(kWidth, 1.0f));
  Buffer out(kWidth * sizeof(float));
  InputSource source{x.as<float>(), nullptr, gain.as<float>(), 1e-6f, kWidth, kWidth};
  InputForm form;
  form.rotation = no_rotation();
  form.padded = form.stride = kWidth;
  form.rows = out.as();
  prepare(source, {&form, 1}, 1, nullptr);
  double sum = 0;
  for (const float v : to_host<float>(out))
    sum += double{v} * v;
  EXPECT_NEAR(sum / kWidth, 1, 1e-5);
}

TEST(GpuPrepare, WritesTwoFormsAndRoundedRows) {
  WALSH_NEED_GPU();
  constexpr int64_t kWidth = 608, kStride = 640;
  const auto x = random_values(2 * kWidth, 14);
  const Buffer dx = to_device(x);
  Buffer half(2 * kStride * 2, true), brain(2 * kStride * 2, true);
  InputSource source;
  source.x = dx.as<float>();
  source.ldx = source.width = kWidth;
  InputForm forms[2];
  for (InputForm& f : forms) {
    f.rotation = no_rotation();
    f.padded = kWidth;
    f.stride = kStride;
  }
  forms[0].rows = half.as();
  forms[0].row_type = DType::f16;
  forms[1].rows = brain.as();
  forms[1].row_type = DType::bf16;
  prepare(source, forms, 2, nullptr);
  const auto a = to_host<uint16_t>(half), b = to_host<uint16_t>(brain);
  for (int64_t t = 0; t < 2; ++t) {
    for (int64_t c = 0; c < kStride; ++c) {
      const auto at = static_cast<size_t>(t * kStride + c);
      const float v = c < kWidth ? x[static_cast<size_t>(t * kWidth + c)] : 0;
      ASSERT_EQ(a[at], f32_to_f16(v));
      ASSERT_EQ(b[at], f32_to_bf16(v));
    }
  }
}

TEST(GpuPrepare, RefusesRotationsOfTheCpuAndWrongShapes) {
  WALSH_NEED_GPU();
  const Buffer x = to_device(random_values(256, 15));
  Activations out(1, 256, 128, 1);
  InputSource source;
  source.x = x.as<float>();
  source.ldx = source.width = 256;
  InputForm form;
  form.padded = 256;
  form.out = &out;
  form.rotation.kind = RotationKind::qr;
  EXPECT_THROW(prepare(source, {&form, 1}, 1, nullptr), Error);
  form.rotation = no_rotation();
  EXPECT_THROW(prepare(source, {&form, 1}, 2, nullptr), Error);  // more than max_m
  form.padded = 512;
  EXPECT_THROW(prepare(source, {&form, 1}, 1, nullptr), Error);
}

}  // namespace
}  // namespace walsh::cuda
