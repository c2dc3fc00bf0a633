// Makes random tensors and inputs for the tests of GPU products.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "../activation_sums.h"
#include "../random_halves.h"
#include "base/cuda/device.h"
#include "base/half.h"
#include "base/random.h"
#include "codec/tensor.h"
#include "cuda_buffers.h"
#include "kernels/cuda/weights/matrix.h"
#include "kernels/ops.h"

namespace walsh::cuda {

using test::to_device;
using test::to_host;
using walsh::test::random_halves;

inline int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Holds a coded tensor of random codes and scales (one in sixteen is zero), and the memory it
// points at.
struct RandomTensor {
  Tensor tensor;
  std::vector<std::vector<std::byte>> arrays;

  RandomTensor(const Format& format, int64_t rows, int64_t cols, uint64_t seed) {
    Random random(seed);
    tensor.format = &format;
    tensor.rows = rows;
    tensor.cols = cols;
    arrays.reserve(8);
    for (int pass = 0; pass < format.passes; ++pass) {
      for (const PassField& field : pass_fields(format, pass, rows, cols)) {
        const auto bytes = static_cast<size_t>(field.rows) * field.row_bytes;
        const auto halves = static_cast<int64_t>(bytes / 2);
        const std::string name = field.suffix;
        auto& array = arrays.emplace_back();
        if (name == "codes") {
          array.resize(bytes);
          for (std::byte& b : array)
            b = static_cast<std::byte>(random.next() & 0xff);
        } else if (name == "scales") {
          array = random_halves(halves, random, 0.01, 0.1);
        } else if (name == "offsets") {
          array = random_halves(halves, random, -0.01, 0.01);
        } else if (name == "sub_scales" || name == "col_scales") {
          array = random_halves(halves, random, 0.5, 1.5);
        } else {
          const auto entries = std::as_bytes(std::span(format.product.codebook, bytes));
          array.assign(entries.begin(), entries.end());
        }
        tensor.pass[pass].*field.array = array;
      }
    }
  }
};

inline std::vector<float> random_values(int64_t count, uint64_t seed, double size = 1) {
  Random random(seed);
  std::vector<float> out(static_cast<size_t>(count));
  for (float& v : out)
    v = static_cast<float>(size * random.normal());
  return out;
}

// Returns inputs of random int8 values and scales, as the CPU has them.
inline ActivationsI8 random_inputs(int64_t m, int64_t cols, int group, int planes, uint64_t seed) {
  Random random(seed);
  ActivationsI8 x(m, cols, group, planes);
  for (int8_t& q : x.q)
    q = static_cast<int8_t>(static_cast<int>(random.below(255)) - 127);
  for (float& s : x.scales)
    s = static_cast<float>(0.001 + 0.01 * random.uniform());
  walsh::test::complete_activations(x, m);
  return x;
}

// Holds the arrays of Activations, permuted and padded, made from those of the CPU.
struct DeviceInputs {
  std::vector<int8_t> q;
  std::vector<float> scales;
  std::vector<int32_t> sums;

  explicit DeviceInputs(const ActivationsI8& x, int64_t m) {
    const int64_t cols = divide_up(x.cols, kPaddedColumns) * kPaddedColumns;
    const int64_t groups = cols / x.group;
    const int64_t vectors = m * x.planes;
    q.assign(static_cast<size_t>(vectors * cols), 0);
    scales.assign(static_cast<size_t>(vectors * groups), 0);
    sums.assign(static_cast<size_t>(vectors * groups), 0);
    for (int64_t v = 0; v < vectors; ++v) {
      for (int64_t g = 0; g < x.groups(); ++g) {
        scales[static_cast<size_t>(v * groups + g)] =
            x.scales[static_cast<size_t>(v * x.groups() + g)];
      }
      for (int64_t c = 0; c < x.cols; ++c) {
        const int8_t value = x.q[static_cast<size_t>(v * x.cols + c)];
        const int64_t place = c / kChunkColumns * kChunkColumns +
                              activation_byte(static_cast<int>(c % kChunkColumns));
        q[static_cast<size_t>(v * cols + place)] = value;
        sums[static_cast<size_t>(v * groups + c / x.group)] += value;
      }
    }
  }
};

inline Activations upload(const ActivationsI8& x, int64_t m) {
  const DeviceInputs arrays(x, m);
  Activations out;
  out.cols = divide_up(x.cols, kPaddedColumns) * kPaddedColumns;
  out.group = x.group;
  out.planes = x.planes;
  out.max_m = m;
  out.q = to_device(arrays.q);
  out.scales = to_device(arrays.scales);
  out.sums = to_device(arrays.sums);
  return out;
}

inline void expect_close(const std::vector<float>& got, const std::vector<float>& expected,
                         double relative) {
  ASSERT_EQ(got.size(), expected.size());
  double squares = 0;
  for (const float v : expected)
    squares += double{v} * v;
  const double bound = relative * std::sqrt(squares / static_cast<double>(expected.size()));
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], bound) << i;
}

inline std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float v : values)
    bits.push_back(std::bit_cast<uint32_t>(v));
  return bits;
}

#define WALSH_NEED_GPU()                                        \
  if (::walsh::cuda::devices().empty()) {                       \
    GTEST_SKIP() << "no CUDA device: " << unavailable_reason(); \
  }                                                             \
  static_assert(true, "")

}  // namespace walsh::cuda
