// Compares the kernel that makes inputs of a batch in one launch with the two that make int8 values
// and pack them: for tests on GPUs and on the host.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "gemv_data.h"
#include "kernels/cuda/gemm/batch_prepare.h"
#include "kernels/cuda/rows/prepare.h"

namespace walsh::cuda {

struct BatchInputs {
  int64_t width = 0, m = 1;
  bool normed = false, gated = false;
  int block = 128;
  int planes = 1;
  GateFunction function = GateFunction::silu;
};

inline std::vector<BatchInputs> batch_inputs() {
  return {
      {.width = 8, .m = 3},
      {.width = 296, .m = 5, .normed = true},
      {.width = 1280, .m = 9, .normed = true, .block = 256, .planes = 2},
      {.width = 4096, .m = 2, .normed = true},
      {.width = 4096, .m = 5},
      {.width = 8192, .m = 1, .normed = true, .block = 64},
      {.width = 9216, .m = 1, .gated = true, .planes = 2},
      {.width = 14336, .m = 1, .gated = true},
      {.width = 5120, .m = 3, .gated = true, .function = GateFunction::gelu_tanh},
      {.width = 5120, .m = 3, .gated = true, .function = GateFunction::relu},
      {.width = 32736, .m = 1, .gated = true, .block = 256},
      {.width = 17000, .m = 1},
  };
}

// The rows before the norm: some are zero, tiny, huge, or have values that are not finite.
inline std::vector<float> batch_rows(const BatchInputs& c) {
  std::vector<float> rows = random_values(c.m * c.width, 51, 3);
  for (int64_t t = 0; t < c.m; ++t) {
    float* row = rows.data() + t * c.width;
    const float factor = t % 7 == 2 ? 0.0f : t % 7 == 4 ? 1e-33f : t % 7 == 6 ? 1e9f : 1.0f;
    for (int64_t i = 0; i < c.width; ++i)
      row[i] *= factor;
    if (t % 7 == 3) row[c.width / 2] = std::numeric_limits<float>::quiet_NaN();
    if (t % 7 == 5) row[0] = std::numeric_limits<float>::infinity();
  }
  return rows;
}

inline void expect_batch_inputs(const BatchInputs& c, int vectors, detail::BatchOrder order) {
  SCOPED_TRACE(testing::Message() << c.m << " rows of " << c.width << " block " << c.block
                                  << " planes " << c.planes << " normed " << c.normed << " gated "
                                  << c.gated << " vectors " << vectors);
  const Buffer x = to_device(batch_rows(c)), up = to_device(random_values(c.m * c.width, 52)),
               gain = to_device(random_values(c.width, 53));
  InputSource source;
  source.x = x.as<float>();
  source.up = c.gated ? up.as<float>() : nullptr;
  source.gain = c.normed ? gain.as<float>() : nullptr;
  source.eps = 1e-5f;
  source.ldx = source.width = c.width;
  source.function = c.function;
  InputForm form;
  form.rotation = Rotation{.block = c.block, .seed = 5};
  form.padded = divide_up(c.width, 32) * 32;
  const int64_t cols = divide_up(form.padded, kPaddedColumns) * kPaddedColumns;
  Activations out(c.m, cols, kChunkColumns, c.planes);
  form.out = &out;
  prepare(source, {&form, 1}, c.m, nullptr);

  const int64_t blocks = divide_up(c.m, vectors);
  const auto make = [&](const auto& kernel) {
    const Buffer to(static_cast<uint64_t>(blocks * vectors * cols * c.planes * 5 / 4), true);
    detail::BatchPack pack;
    pack.to = to.as<std::byte>();
    pack.m = static_cast<int>(c.m);
    pack.cols = static_cast<int>(cols);
    pack.planes = c.planes;
    pack.vectors = vectors;
    pack.order = order;
    kernel(pack);
    return to_host<std::byte>(to);
  };
  const auto expected = make([&](detail::BatchPack& pack) {
    pack.q = out.q.as<const int8_t>();
    pack.x_scales = out.scales.as<const float>();
    detail::pack_batch(pack, nullptr);
  });
  const InputView in = input_view(source);
  const FormView view = form_view(source, form, c.m);
  ASSERT_TRUE(detail::can_prepare_batch(in, view));
  const auto got =
      make([&](const detail::BatchPack& pack) { detail::prepare_batch(in, view, pack, nullptr); });
  ASSERT_TRUE(got == expected);
}

inline void expect_all_batch_inputs() {
  int vectors = 32;
  for (const BatchInputs& c : batch_inputs()) {
    for (const auto order : {detail::BatchOrder::eights, detail::BatchOrder::tiles}) {
      expect_batch_inputs(c, vectors, order);
      if (testing::Test::HasFatalFailure()) return;
    }
    vectors = vectors == 128 ? 32 : 2 * vectors;
  }
}

}  // namespace walsh::cuda
