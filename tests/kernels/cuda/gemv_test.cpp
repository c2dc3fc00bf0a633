#include "kernels/cuda/gemv/gemv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "codec/kernels.h"
#include "gemv_data.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

// Holds a tensor on both sides.
struct Weights {
  RandomTensor host;
  std::vector<PanelMatrix> panels;
  std::vector<Matrix> device;

  Weights(const Format& format, int64_t rows, int64_t cols, uint64_t seed)
      : host(format, rows, cols, seed) {
    Uploader uploader;
    Buffer staging;
    for (int pass = 0; pass < format.passes; ++pass) {
      panels.push_back(pack_panels(host.tensor, pass));
      device.push_back(upload_matrix(host.tensor, pass, uploader, staging));
    }
    uploader.synchronize();
  }
};

// Holds the inputs of a format's passes on both sides.
struct Inputs {
  std::vector<ActivationsI8> host;
  std::vector<Activations> device;

  Inputs(const Format& format, int64_t m, int64_t cols, uint64_t seed) {
    const int64_t padded = divide_up(cols, 32) * 32;
    const int group = format.rotation_block ? 128 : 32;
    for (int pass = 0; pass < format.passes; ++pass) {
      host.push_back(random_inputs(m, padded, group, format.activation_planes, seed + 7u + pass));
      device.push_back(upload(host.back(), m));
    }
  }
};

Matmul product_of(const Weights& w, const Inputs& x, float* y) {
  Matmul p;
  for (size_t pass = 0; pass < w.device.size(); ++pass) {
    p.pass[pass] = &w.device[pass];
    p.input[pass] = &x.device[pass];
  }
  p.y = y;
  p.ldy = w.host.tensor.rows;
  return p;
}

std::vector<float> multiply_on_cpu(const Weights& w, const Inputs& x, int64_t m) {
  const int64_t rows = w.host.tensor.rows;
  std::vector<float> y(static_cast<size_t>(m * rows));
  for (size_t pass = 0; pass < w.panels.size(); ++pass) {
    ops(Isa::ref).matmul_i8(
        {w.panels[pass], x.host[pass], m, y.data(), rows, 0, w.panels[pass].panels(), pass > 0});
  }
  return y;
}

std::vector<float> multiply_on_gpu(const Weights& w, const Inputs& x, int64_t m) {
  Buffer y(static_cast<uint64_t>(m * w.host.tensor.rows) * sizeof(float));
  cuda::fill_zero(y.as(), y.bytes(), nullptr);
  const Matmul p = product_of(w, x, y.as<float>());
  gemv({&p, 1}, m, nullptr);
  return to_host<float>(y);
}

template <typename Body>
void for_coded_formats(const Body& body) {
  for (const Format& format : all_formats()) {
    if (format.dense || !has_kernel(format, Kernel::gpu_products)) continue;
    SCOPED_TRACE(std::string(format.name));
    body(format);
    if (testing::Test::HasFatalFailure()) return;
  }
  for (const char* name : {"tc2.5:h:blocks", "tc3:h:blocks", "tc4:h:blocks"}) {
    SCOPED_TRACE(name);
    body(get_format(name));
    if (testing::Test::HasFatalFailure()) return;
  }
}

// One unit of columns is one warp's and added up in the order of the CPU: integer sums, scales and
// float operations all show in the bits.
TEST(GpuGemv, ShortRowsHaveTheBitsOfTheCpu) {
  WALSH_NEED_GPU();
  for_coded_formats([](const Format& format) {
    // Planes are summed apart, offsets per group of inputs.
    if (format.activation_planes == 2 || format.name == "itq3_s8") return;
    for (const int64_t cols : {32, 96, 256}) {
      // Column blocks of 64 and 32 columns are added up by 32 here.
      if (format.kind == CodeKind::trellis && cols == 96) continue;
      const Weights w(format, 37, cols, 1);
      const Inputs x(format, 5, cols, 2);
      ASSERT_EQ(bits_of(multiply_on_gpu(w, x, 5)), bits_of(multiply_on_cpu(w, x, 5)));
    }
  });
}

TEST(GpuGemv, IntegerSumsAreExact) {
  WALSH_NEED_GPU();
  const Format& format = get_format("q8_0");
  constexpr int64_t kRows = 33, kCols = 1056;
  RandomTensor t(format, kRows, kCols, 3);
  std::vector<std::byte> ones(t.tensor.pass[0].scales.size());
  for (size_t i = 0; i < ones.size(); i += 2) {
    ones[i] = std::byte{0x00};
    ones[i + 1] = std::byte{0x3c};  // 1 as fp16
  }
  t.tensor.pass[0].scales = ones;
  for (const int64_t m : {1, 4, 16}) {
    ActivationsI8 x = random_inputs(m, kCols, 32, 1, 4);
    std::fill(x.scales.begin(), x.scales.end(), 1.0f);
    const Activations dx = upload(x, m);
    Uploader uploader;
    Buffer staging;
    const Matrix w = upload_matrix(t.tensor, 0, uploader, staging);
    uploader.synchronize();
    Buffer y(static_cast<uint64_t>(kRows * m) * sizeof(float));
    Matmul p;
    p.pass[0] = &w;
    p.input[0] = &dx;
    p.y = y.as<float>();
    p.ldy = kRows;
    gemv({&p, 1}, m, nullptr);
    const auto got = to_host<float>(y);
    for (int64_t token = 0; token < m; ++token) {
      for (int64_t row = 0; row < kRows; ++row) {
        int64_t sum = 0;
        for (int64_t c = 0; c < kCols; ++c) {
          const auto code =
              static_cast<int8_t>(t.tensor.pass[0].codes[static_cast<size_t>(row * kCols + c)]);
          sum += int64_t{code} * x.q[static_cast<size_t>(token * kCols + c)];
        }
        ASSERT_EQ(static_cast<double>(got[static_cast<size_t>(token * kRows + row)]),
                  static_cast<double>(sum));
      }
    }
  }
}

TEST(GpuGemv, MatchTheCpuForEveryFormatAndShape) {
  WALSH_NEED_GPU();
  struct Shape {
    int64_t rows, cols, m;
  };
  const Shape shapes[] = {{1, 256, 1},    {16, 2048, 2},   {100, 1376, 3}, {515, 896, 8},
                          {64, 4864, 16}, {2200, 2304, 1}, {48, 14336, 9}};
  for_coded_formats([&](const Format& format) {
    for (const Shape& s : shapes) {
      SCOPED_TRACE(testing::Message() << s.rows << " x " << s.cols << " m " << s.m);
      const Weights w(format, s.rows, s.cols, 5);
      const Inputs x(format, s.m, s.cols, 6);
      expect_close(multiply_on_gpu(w, x, s.m), multiply_on_cpu(w, x, s.m), 1e-5);
      if (testing::Test::HasFatalFailure()) return;
    }
  });
}

TEST(GpuGemv, CodedWeightsTakeInputsWithScalesPer32Columns) {
  WALSH_NEED_GPU();
  constexpr int64_t kRows = 40, kCols = 1376, kM = 3;
  for (const char* name : {"itq3_s", "itq3_s8", "tq4", "tq3:full", "tc3:h", "tc3.5:h"}) {
    SCOPED_TRACE(name);
    const Weights w(get_format(name), kRows, kCols, 7);
    Inputs x(get_format(name), kM, kCols, 8);
    x.host[0] = random_inputs(kM, kCols, 32, 2, 9);
    x.device[0] = upload(x.host[0], kM);
    expect_close(multiply_on_gpu(w, x, kM), multiply_on_cpu(w, x, kM), 1e-5);
  }
}

TEST(GpuGemv, ATokenDoesNotDependOnTheOthers) {
  WALSH_NEED_GPU();
  constexpr int64_t kRows = 70, kM = 16;
  for (const char* name : {"itq3_s", "itq3_s8", "tq2", "tq4+4", "q8_0", "tc2:h", "tc2.5:h"}) {
    for (const int64_t cols : {2048, 14336}) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(cols));
      const Format& format = get_format(name);
      const Weights w(format, kRows, cols, 10);
      const Inputs x(format, kM, cols, 11);
      const auto all = bits_of(multiply_on_gpu(w, x, kM));
      for (const int64_t m : {1, 2, 5, 8, 11}) {
        const auto some = bits_of(multiply_on_gpu(w, x, m));
        for (size_t i = 0; i < some.size(); ++i)
          ASSERT_EQ(some[i], all[i]) << "m " << m << " at " << i;
      }
    }
  }
}

TEST(GpuGemv, SeveralProductsBiasesAndSumsInOneCall) {
  WALSH_NEED_GPU();
  constexpr int64_t kCols = 1024, kM = 2;
  const Format& format = get_format("itq3_s");
  const Weights q(format, 96, kCols, 12), k(format, 24, kCols, 13),
      v(get_format("tq4"), 24, kCols, 14);
  const Inputs x(format, kM, kCols, 15);
  const auto bias = random_values(96, 16), before = random_values(24 * kM, 17);
  const Buffer dbias = to_device(bias);
  Buffer yq(96 * kM * 4), yk = to_device(before), yv(24 * kM * 4);
  Matmul products[] = {product_of(q, x, yq.as<float>()), product_of(k, x, yk.as<float>()),
                       product_of(v, x, yv.as<float>())};
  products[0].bias = dbias.as<float>();
  products[1].add = true;
  gemv(products, kM, nullptr);
  auto eq = multiply_on_cpu(q, x, kM), ek = multiply_on_cpu(k, x, kM);
  for (size_t i = 0; i < eq.size(); ++i)
    eq[i] += bias[i % 96];
  for (size_t i = 0; i < ek.size(); ++i)
    ek[i] += before[i];
  expect_close(to_host<float>(yq), eq, 1e-5);
  expect_close(to_host<float>(yk), ek, 1e-5);
  expect_close(to_host<float>(yv), multiply_on_cpu(v, x, kM), 1e-5);
}

TEST(GpuGemv, RefuseWhatTheyCannotMultiply) {
  WALSH_NEED_GPU();
  const Format& format = get_format("tq3");
  const Weights w(format, 16, 512, 23);
  const Inputs x(format, 2, 256, 24);
  Buffer y(16 * 32 * 4);
  const Matmul p = product_of(w, x, y.as<float>());
  EXPECT_THROW(gemv({&p, 1}, 2, nullptr), Error);   // columns differ
  EXPECT_THROW(gemv({&p, 1}, 17, nullptr), Error);  // too many vectors
}

}  // namespace
}  // namespace walsh::cuda
