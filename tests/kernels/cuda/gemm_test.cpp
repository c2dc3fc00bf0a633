#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/blas.h"
#include "kernels/cuda/weights/dequantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "kernels/cuda/random_weights.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

using namespace test;

constexpr int64_t kShapes[][2] = {{33, 896}, {16, 1376}, {50, 1024}, {7, 32}, {20, 2080}};

// Returns the largest relative rounding error of a type, twice: the level and the sum are rounded
// once more.
double rounding(DType type) {
  return type == DType::bf16 ? 0x1p-8 : 0x1p-11;
}

class GemmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (devices().empty()) GTEST_SKIP() << "no CUDA device: " << unavailable_reason();
    use_device(devices()[0].index);
  }
};

class DequantizedGemmTest : public GemmTest {
 protected:
  void SetUp() override {
    GemmTest::SetUp();
    if (IsSkipped()) return;
    const std::string reason = DequantizedGemm::unavailable_reason();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

// The weights of a row differ from `expected` by rounding: of the result, and of levels to f16,
// whose errors the transform spreads over the row.
void expect_row(const uint16_t* row, const float* expected, int64_t cols, DType type,
                const std::string& what) {
  double squares = 0;
  for (int64_t c = 0; c < cols; ++c)
    squares += static_cast<double>(expected[c]) * expected[c];
  const double spread = 0x1p-9 * std::sqrt(squares / static_cast<double>(cols)) + 0x1p-24;
  for (int64_t c = 0; c < cols; ++c) {
    const double allowed = rounding(type) * std::abs(expected[c]) + spread;
    ASSERT_NEAR(widen(type, row[c]), expected[c], allowed) << what << " column " << c;
  }
}

std::vector<uint16_t> run_dequantize(const RandomWeights& w, Basis basis, DType type, int64_t begin,
                                     int64_t end) {
  const RowMatmul product = w.product();
  const Buffer out = to_device(
      std::vector<uint16_t>(static_cast<size_t>((end - begin + 1) * product.cols), 0x7fff));
  dequantize(product, basis, type, begin, end, out.as(), nullptr);
  std::vector<uint16_t> host = to_host<uint16_t>(out);
  for (int64_t c = 0; c < product.cols; ++c)  // the row behind the last one is not written
    EXPECT_EQ(host[static_cast<size_t>((end - begin) * product.cols + c)], 0x7fff);
  return host;
}

TEST_F(GemmTest, dequantizes_every_format_in_the_basis_of_the_model) {
  for (const Format& format : all_formats()) {
    if (!gpu_code(format)) continue;
    for (const auto& shape : kShapes) {
      RandomWeights w(format, shape[0], shape[1], 11);
      w.upload();
      const std::vector<float> expected = w.decoded();
      const int64_t padded = padded_cols(format, shape[1]);
      for (DType type : {DType::bf16, DType::f16}) {
        const auto got = run_dequantize(w, Basis::original, type, 0, shape[0]);
        for (int64_t row = 0; row < shape[0]; ++row)
          expect_row(got.data() + row * padded, expected.data() + row * shape[1], shape[1], type,
                     std::string(format.name) + " row " + std::to_string(row));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Levels are values of 16 bits here as well.
TEST_F(GemmTest, dequantizes_to_float32) {
  for (const Format& format : all_formats()) {
    if (!gpu_code(format)) continue;
    for (const auto& shape : kShapes) {
      RandomWeights w(format, shape[0], shape[1], 12);
      w.upload();
      const std::vector<float> expected = w.decoded();
      const RowMatmul product = w.product();
      const Buffer out(static_cast<uint64_t>(shape[0] * product.cols) * sizeof(float));
      dequantize(product, Basis::original, DType::f32, 0, shape[0], out.as(), nullptr);
      const std::vector<float> got = to_host<float>(out);
      double error = 0, squares = 0;
      for (int64_t row = 0; row < shape[0]; ++row) {
        for (int64_t c = 0; c < shape[1]; ++c) {
          const double value = expected[static_cast<size_t>(row * shape[1] + c)];
          const double other = got[static_cast<size_t>(row * product.cols + c)];
          error += (other - value) * (other - value);
          squares += value * value;
        }
      }
      EXPECT_LT(std::sqrt(error / squares), 4e-4) << format.name;
    }
  }
}

TEST_F(GemmTest, dequantizes_other_rotation_blocks_and_none) {
  for (int block : {32, 64, 128, 256, 512, 1024}) {
    for (int64_t cols : {2080, 3040, 4096}) {
      RandomWeights w(get_format(block == 64 ? "itq3_s" : "tq3"), 18, cols, 5);
      w.tensor.rotation[0].block = block;
      w.tensor.rotation[0].signs = block != 128;
      if (block == 32 && cols == 4096) w.tensor.rotation[0].kind = RotationKind::none;
      w.upload();
      const std::vector<float> expected = w.decoded();
      const auto got = run_dequantize(w, Basis::original, DType::f16, 0, 18);
      for (int64_t row = 0; row < 18; ++row)
        expect_row(got.data() + row * cols, expected.data() + row * cols, cols, DType::f16,
                   "block " + std::to_string(block) + " row " + std::to_string(row));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(GemmTest, dequantizes_slices_in_the_rotated_basis) {
  for (const char* name : {"itq3_s", "itq3_s8", "tq2", "tq4:full", "q8_0"}) {
    RandomWeights w(get_format(name), 70, 1376, 3);
    w.upload();
    const auto got = run_dequantize(w, Basis::rotated, DType::bf16, 16, 61);
    std::vector<float> expected(1376);
    for (int64_t row = 16; row < 61; ++row) {
      decode_pass_row(w.tensor, 0, row, expected.data());
      expect_row(got.data() + (row - 16) * 1376, expected.data(), 1376, DType::bf16, name);
    }
    if (HasFatalFailure()) return;
  }
}

TEST_F(GemmTest, refuses_what_has_no_meaning) {
  RandomWeights w(get_format("tq4+2"), 16, 256, 1);
  w.upload();
  Buffer out(16 * 256 * 2);
  EXPECT_THROW(dequantize(w.product(), Basis::rotated, DType::bf16, 0, 16, out.as(), nullptr),
               Error);
  EXPECT_THROW(dequantize(w.product(), Basis::original, DType::bf16, 8, 16, out.as(), nullptr),
               Error);
}

struct RowCase {
  const char* format;
  int64_t rows, cols, m;
  DType type;
  bool add, bias;
  uint64_t scratch_rows;
};

TEST_F(DequantizedGemmTest, multiplies_every_format) {
  std::vector<RowCase> cases;
  for (const Format& format : all_formats()) {
    if (!gpu_code(format)) continue;
    cases.push_back({format.name.data(), 70, 896, 37, DType::bf16, true, true, 80});
    cases.push_back({format.name.data(), 129, 1376, 5, DType::f16, false, false, 48});
  }
  cases.push_back({"itq3_s", 40, 512, 1, DType::bf16, false, true, 40});
  cases.push_back({"tq3", 64, 512, 300, DType::f16, true, false, 64});
  for (const RowCase& k : cases) {
    RandomWeights w(get_format(k.format), k.rows, k.cols, 21);
    w.upload();
    const int64_t padded = padded_cols(*w.tensor.format, k.cols), ldy = k.rows + 2;
    const RandomRows x(k.m, k.cols, padded + 8, k.type, 77);
    std::vector<float> bias(k.bias ? static_cast<size_t>(k.rows) : 0, 0.25f);
    const Buffer device_bias = k.bias ? to_device(bias) : Buffer();
    const Buffer y = to_device(std::vector<float>(static_cast<size_t>(k.m * ldy), 3.0f));
    RowMatmul p = w.product();
    p.bias = device_bias.as<float>();
    p.y = y.as<float>();
    p.ldy = ldy;
    p.add = k.add;
    DequantizedGemm products(k.scratch_rows * static_cast<uint64_t>(padded) * 2);
    products.multiply({&p, 1}, x.rows, k.m, nullptr);
    const Outcome o = compare(to_host<float>(y), ldy, w.decoded(), x.values, k.rows, k.cols, k.m,
                              bias, k.add ? 3.0f : 0.0f, rounding(k.type));
    EXPECT_LT(o.worst, 1) << k.format << " m = " << k.m << " at " << o.where;
  }
}

TEST_F(DequantizedGemmTest, stacks_products_that_lie_side_by_side) {
  const Format& format = get_format("itq3_s");
  RandomWeights q(format, 64, 512, 1), k(format, 32, 512, 2), v(format, 23, 512, 3);
  const int64_t m = 40, ldy = 64 + 32 + 23;
  const RandomRows x(m, 512, 512, DType::bf16, 9);
  const Buffer y = to_device(std::vector<float>(static_cast<size_t>(m * ldy), 0.0f));
  std::vector<RowMatmul> list;
  std::vector<float> all;
  int64_t row = 0;
  for (RandomWeights* w : {&q, &k, &v}) {
    w->upload();
    RowMatmul p = w->product();
    p.y = y.as<float>() + row;
    p.ldy = ldy;
    list.push_back(p);
    row += w->tensor.rows;
    const std::vector<float> part = w->decoded();
    all.insert(all.end(), part.begin(), part.end());
  }
  DequantizedGemm products(DequantizedGemm::scratch_for(ldy, 512));
  products.multiply(list, x.rows, m, nullptr);
  const Outcome o =
      compare(to_host<float>(y), ldy, all, x.values, ldy, 512, m, {}, 0, rounding(DType::bf16));
  EXPECT_LT(o.worst, 1) << o.where;
}

TEST_F(DequantizedGemmTest, multiplies_plain_weights_f32_in_full_precision) {
  for (DType type : {DType::f32, DType::f16, DType::bf16}) {
    const int64_t rows = 45, cols = 640, m = 33;
    const RandomRows w(rows, cols, cols, type, 4), x(m, cols, cols + 16, type, 5);
    DenseMatrix dense{type, rows, cols, w.buffer};
    const Buffer y = to_device(std::vector<float>(static_cast<size_t>(m * rows), 0.0f));
    RowMatmul p;
    p.dense = &dense;
    p.cols = cols;
    p.y = y.as<float>();
    p.ldy = rows;
    DequantizedGemm products(0);
    products.multiply({&p, 1}, x.rows, m, nullptr);
    // Inputs are taken as rounded: what is left is the float sum.
    const Outcome o = compare(to_host<float>(y), rows, w.values, x.values, rows, cols, m, {}, 0, 0);
    EXPECT_LT(o.worst, 1) << dtype_name(type) << " " << o.where;
  }
}

TEST_F(DequantizedGemmTest, adds_second_moments_of_bf16_rows) {
  for (const int64_t width : {33, 384}) {
    const int64_t m = 70, stride = 384;
    const RandomRows x(m, width, stride, DType::bf16, 5);
    const Buffer sums = to_device(std::vector<float>(static_cast<size_t>(width * width), 1.0f));
    Blas blas;
    for (int64_t begin = 0; begin < m; begin += 35) {  // two parts
      blas.add(
          {x.buffer.as<const uint16_t>() + begin * stride, 35, stride, width, sums.as<float>()},
          nullptr);
    }
    const auto got = to_host<float>(sums);
    for (int64_t i = 0; i < width; ++i) {
      for (int64_t j = 0; j < width; ++j) {
        double want = 1, size = 1;
        for (int64_t t = 0; t < m; ++t) {
          const double product = static_cast<double>(x.values[static_cast<size_t>(t * width + i)]) *
                                 x.values[static_cast<size_t>(t * width + j)];
          want += product;
          size += std::abs(product);
        }
        ASSERT_NEAR(got[static_cast<size_t>(i * width + j)], want, 1e-5 * size) << i << ' ' << j;
      }
    }
  }
}

}  // namespace
}  // namespace walsh::cuda
