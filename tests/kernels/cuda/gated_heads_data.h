// Makes rows of heads with gates, for tests on GPUs and on the host.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "gemv_data.h"
#include "kernels/cuda/rows/gated_heads.h"

namespace walsh::cuda {

struct GatedCase {
  int64_t m;
  int heads, dim;
  bool normed;         // of a delta net, with gates of their own; else beside queries
  int64_t skew;        // floats before the first gate, for arbitrary alignment
  bool first = false;  // gates come before the norm, which has gains for all heads
};

inline std::vector<GatedCase> gated_cases() {
  std::vector<GatedCase> cases = {{1, 2, 256, false, 0}, {1, 16, 128, true, 0}, {1, 5, 8, true, 0}};
  Random random(39);
  for (const int64_t m : {1, 2, 16, 17, 100}) {
    const int dim = 8 << random.below(m < 17 ? 6 : 3),
              heads = 1 + static_cast<int>(random.below(6));
    cases.push_back({m, heads, dim, m % 2 == 0, static_cast<int64_t>(random.below(3))});
  }
  return cases;
}

// Holds the gated rows on the device.
struct GatedRows {
  std::vector<float> x, gate, gain;
  Buffer device_x, device_gate, device_gain;
  HeadGates gates;

  explicit GatedRows(const GatedCase& c) {
    const int64_t width = c.heads * c.dim;
    const int64_t each = c.normed ? c.dim : 2 * c.dim;
    x = random_values(c.m * width, 40);
    gate = random_values(c.skew + c.m * c.heads * each, 41);
    gain = random_values(c.first ? width : c.dim, 42);
    device_x = to_device(x);
    device_gate = to_device(gate);
    device_gain = to_device(gain);
    gates.gate = device_gate.as<float>() + c.skew + (c.normed ? 0 : c.dim);
    gates.head_ld = each;
    gates.ld = c.heads * each;
    gates.gain = c.normed ? device_gain.as<float>() : nullptr;
    gates.eps = 1e-5f;
    gates.dim = c.dim;
    gates.first = c.first;
  }

  float gate_of(const GatedCase& c, size_t i) const {
    const auto dim = static_cast<size_t>(c.dim), head = i / dim;
    const size_t at = c.normed ? i : head * 2 * dim + dim + i % dim;
    return gate[static_cast<size_t>(c.skew) + at];
  }
};

inline void expect_gated(const GatedCase& c) {
  SCOPED_TRACE(testing::Message() << c.m << " rows of " << c.heads << " heads of " << c.dim);
  GatedRows rows(c);
  gate_heads(rows.device_x.as<float>(), rows.gates, c.m, c.heads, nullptr);
  const auto got = to_host<float>(rows.device_x);
  const auto dim = static_cast<size_t>(c.dim);
  for (size_t i = 0; i < got.size(); ++i) {
    const auto factor = [&](size_t at) {
      const double gate = rows.gate_of(c, at);
      return (c.normed ? gate : 1.0) / (1 + std::exp(-gate));
    };
    double squares = 0;
    for (size_t k = i / dim * dim; k < (i / dim + 1) * dim; ++k)
      squares += std::pow(rows.x[k] * (c.first ? factor(k) : 1.0), 2);
    double expected = rows.x[i] * factor(i);
    if (c.normed) expected *= rows.gain[i % rows.gain.size()] / std::sqrt(squares / c.dim + 1e-5);
    ASSERT_NEAR(got[i], expected, 1e-5) << i;
  }
}

// Checks rotated float rows and int8 values: they are those of rows that were gated in place.
inline void expect_prepared(const GatedCase& c) {
  SCOPED_TRACE(testing::Message() << c.m << " rows of " << c.heads << " heads of " << c.dim);
  GatedRows rows(c);
  const int64_t width = c.heads * c.dim, padded = divide_up(width, 32) * 32;
  const int64_t cols = divide_up(width, kPaddedColumns) * kPaddedColumns;
  std::vector<float> floats[2];
  std::vector<int8_t> values[2];
  for (int i = 0; i < 2; ++i) {  // gated by the preparation, and before it
    const Buffer out(static_cast<uint64_t>(c.m * padded) * sizeof(float));
    Activations quantized(c.m, cols, 128, 2);
    InputForm forms[2];
    forms[0].rotation = Rotation{.block = width % 512 == 0 ? 512 : 128, .seed = 3};
    forms[1].rotation = Rotation{.kind = RotationKind::none};
    for (InputForm& form : forms)
      form.padded = padded;
    forms[0].rows = out.as();
    forms[0].stride = padded;
    forms[1].out = &quantized;
    InputSource source;
    source.x = rows.device_x.as<float>();
    source.ldx = source.width = width;
    if (i == 0) {
      prepare(source, rows.gates, forms, c.m, nullptr);
    } else {
      gate_heads(rows.device_x.as<float>(), rows.gates, c.m, c.heads, nullptr);
      prepare(source, forms, c.m, nullptr);
    }
    floats[i] = to_host<float>(out);
    values[i] = to_host<int8_t>(quantized.q);
  }
  if (!c.normed) {
    EXPECT_EQ(bits_of(floats[0]), bits_of(floats[1]));
    EXPECT_EQ(values[0], values[1]);
    return;
  }
  expect_close(floats[0], floats[1], 1e-6);
}

}  // namespace walsh::cuda
