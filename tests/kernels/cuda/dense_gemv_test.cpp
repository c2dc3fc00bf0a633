#include <gtest/gtest.h>

#include <cmath>

#include "base/half.h"
#include "gemv_data.h"
#include "kernels/cuda/gemv/gemv.h"

namespace walsh::cuda {
namespace {

// Holds a plain matrix of random values on both sides.
struct Plain {
  std::vector<float> values;  // as stored
  std::vector<std::byte> bytes;
  DenseMatrix device;

  Plain(DType type, int64_t rows, int64_t cols, uint64_t seed)
      : values(random_values(rows * cols, seed)) {
    bytes.resize(values.size() * static_cast<size_t>(dtype_size(type)));
    for (size_t i = 0; i < values.size(); ++i) {
      if (type == DType::f32) {
        std::memcpy(bytes.data() + 4 * i, &values[i], 4);
        continue;
      }
      const uint16_t h = type == DType::f16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
      values[i] = type == DType::f16 ? f16_to_f32(h) : bf16_to_f32(h);
      std::memcpy(bytes.data() + 2 * i, &h, 2);
    }
    Tensor tensor;
    tensor.format = &dense_format(type);
    tensor.rows = rows;
    tensor.cols = cols;
    tensor.data = bytes;
    Uploader uploader;
    device = upload_dense(tensor, uploader);
    uploader.synchronize();
  }
};

// Returns the largest error of W x in units of |W| |x|.
double error_of(const Plain& w, const std::vector<float>& x, const std::vector<float>& y,
                int64_t m) {
  double worst = 0;
  for (int64_t t = 0; t < m; ++t) {
    for (int64_t row = 0; row < w.device.rows; ++row) {
      double sum = 0, size = 1e-30;
      for (int64_t c = 0; c < w.device.cols; ++c) {
        const double p = double{w.values[static_cast<size_t>(row * w.device.cols + c)]} *
                         x[static_cast<size_t>(t * w.device.cols + c)];
        sum += p;
        size += p * p;
      }
      const double error = y[static_cast<size_t>(t * w.device.rows + row)] - sum;
      worst = std::max(worst, std::abs(error) / std::sqrt(size));
      if (std::isnan(error)) return 1e30;
    }
  }
  return worst;
}

TEST(GpuDenseGemv, MatchDoublePrecision) {
  WALSH_NEED_GPU();
  struct Shape {
    int64_t rows, cols, m;
  };
  const Shape shapes[] = {{1, 8, 1},     {16, 64, 2},     {37, 70, 3},    {130, 1001, 5},
                          {300, 896, 8}, {515, 2048, 16}, {40, 14336, 1}, {1030, 1376, 4}};
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    for (const Shape& s : shapes) {
      SCOPED_TRACE(testing::Message()
                   << dtype_name(type) << " " << s.rows << " x " << s.cols << " m " << s.m);
      const Plain w(type, s.rows, s.cols, 1);
      for (const double size : {1.0, 1e-6, 1e6}) {
        const auto x = random_values(s.m * s.cols, 2, size);
        const Buffer dx = to_device(x);
        Buffer y(static_cast<uint64_t>(s.m * s.rows) * 4);
        DenseMatmul p;
        p.weights = &w.device;
        p.x = dx.as<float>();
        p.ldx = s.cols;
        p.y = y.as<float>();
        p.ldy = s.rows;
        gemv({&p, 1}, s.m, nullptr);
        EXPECT_LT(error_of(w, x, to_host<float>(y), s.m), 3e-6);
      }
    }
  }
}

TEST(GpuDenseGemv, SeveralWithBiasAndSum) {
  WALSH_NEED_GPU();
  constexpr int64_t kCols = 512, kM = 3;
  const Plain a(DType::bf16, 64, kCols, 3), b(DType::bf16, 20, kCols, 4),
      c(DType::f32, 5, kCols, 5);
  const auto x = random_values(kM * kCols, 6), bias = random_values(64, 7);
  const Buffer dx = to_device(x), dbias = to_device(bias);
  Buffer ya(64 * kM * 4), yb(20 * kM * 4, true), yc(5 * kM * 4);
  DenseMatmul products[3];
  const Plain* weights[] = {&a, &b, &c};
  Buffer* outputs[] = {&ya, &yb, &yc};
  for (size_t i = 0; i < 3; ++i) {
    products[i].weights = &weights[i]->device;
    products[i].x = dx.as<float>();
    products[i].ldx = kCols;
    products[i].y = outputs[i]->as<float>();
    products[i].ldy = weights[i]->device.rows;
  }
  products[0].bias = dbias.as<float>();
  products[1].add = true;
  gemv(products, kM, nullptr);
  gemv({products + 1, 1}, kM, nullptr);  // once more: twice the product
  auto got = to_host<float>(ya);
  for (size_t i = 0; i < got.size(); ++i)
    got[i] -= bias[i % 64];
  EXPECT_LT(error_of(a, x, got, kM), 5e-6);
  got = to_host<float>(yb);
  for (float& v : got)
    v /= 2;
  EXPECT_LT(error_of(b, x, got, kM), 3e-6);
  EXPECT_LT(error_of(c, x, to_host<float>(yc), kM), 3e-6);
}

TEST(GpuDenseGemv, ATokenDoesNotDependOnTheOthers) {
  WALSH_NEED_GPU();
  constexpr int64_t kRows = 50, kCols = 1024, kM = 16;
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    const Plain w(type, kRows, kCols, 8);
    const Buffer x = to_device(random_values(kM * kCols, 9));
    std::vector<float> all;
    for (const int64_t m : {16, 1, 2, 4, 9}) {
      Buffer y(static_cast<uint64_t>(m * kRows) * 4);
      DenseMatmul p;
      p.weights = &w.device;
      p.x = x.as<float>();
      p.ldx = kCols;
      p.y = y.as<float>();
      p.ldy = kRows;
      gemv({&p, 1}, m, nullptr);
      const auto got = to_host<float>(y);
      if (m == kM) all = got;
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(got[i], all[i]) << dtype_name(type) << " m " << m << " at " << i;
    }
  }
}

}  // namespace
}  // namespace walsh::cuda
