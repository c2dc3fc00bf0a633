// Tests products by lookup: every instruction set against ref, and ref against the exact product.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "codec/product/product.h"
#include "codec/product/product_tables.h"
#include "kernels/ops.h"
#include "kernels/panel_layout.h"
#include "random_halves.h"

namespace walsh {
namespace {

struct RandomProduct {
  Tensor tensor;
  std::vector<std::vector<std::byte>> arrays;

  // `reach` is the largest entry of an own codebook.
  RandomProduct(const char* name, int64_t rows, int64_t cols, uint64_t seed, int reach = 100) {
    Random random(seed);
    tensor.format = &get_format(name);
    tensor.rows = rows;
    tensor.cols = cols;
    for (const ArraySpec& spec : array_specs(*tensor.format, rows, cols)) {
      auto& array = arrays.emplace_back(spec.bytes);
      for (std::byte& b : array)
        b = static_cast<std::byte>(random.next() & 0xff);
      if (spec.suffix == "scales")
        array = test::random_halves(static_cast<int64_t>(spec.bytes / 2), random, -0.1, 0.1);
      if (spec.suffix == "codebook") {
        for (std::byte& b : array)
          b = static_cast<std::byte>(static_cast<int>(random.below(2 * reach + 1)) - reach);
      }
    }
    std::vector<std::span<const std::byte>> spans(arrays.begin(), arrays.end());
    bind_arrays(tensor, spans);
  }
};

ActivationsI8 activations(int64_t m, int64_t cols, int group, int planes, uint64_t seed) {
  Random random(seed);
  ActivationsI8 x(m, cols, group, planes);
  std::vector<float> row(static_cast<size_t>(cols));
  for (int64_t t = 0; t < m; ++t) {
    for (float& v : row)
      v = static_cast<float>(random.normal());
    ops(Isa::ref).quantize_i8(row.data(), x, t);
  }
  return x;
}

std::vector<float> run(Isa isa, const PanelMatrix& w, const ActivationsI8& x, int64_t m,
                       bool accumulate) {
  const int64_t ldy = w.rows + 3;
  std::vector<float> y(static_cast<size_t>(m * ldy), 0.25f);
  const int64_t middle = w.panels() * 2 / 5;  // two ranges, as two threads would have
  ops(isa).matmul_lookup({w, x, m, y.data(), ldy, 0, middle, accumulate});
  ops(isa).matmul_lookup({w, x, m, y.data(), ldy, middle, w.panels(), accumulate});
  return y;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Shape {
  int64_t rows, cols, m;
};
constexpr Shape kShapes[] = {{1, 32, 1},   {16, 128, 1}, {17, 96, 2},   {63, 160, 1},
                             {64, 256, 1}, {65, 416, 3}, {130, 992, 1}, {200, 384, 1}};

TEST(ProductLookup, EveryIsaGivesTheBitsOfRef) {
  uint64_t seed = 1;
  for (const char* name : {"pq3", "pq3:layer"}) {
    for (const Shape& s : kShapes) {
      const RandomProduct t(name, s.rows, s.cols, ++seed);
      const PanelMatrix w = pack_panels(t.tensor, 0);
      const int group = seed % 3 == 0 ? kPlainGroup : kActivationGroup;
      const auto x = activations(s.m, w.cols, group, 1 + static_cast<int>(seed % 2), seed);
      const bool accumulate = seed % 4 < 2;
      const auto want = run(Isa::ref, w, x, s.m, accumulate);
      for (const Isa isa : supported_isas()) {
        EXPECT_TRUE(same_bits(run(isa, w, x, s.m, accumulate), want))
            << name << " " << s.rows << "x" << s.cols << " " << isa_name(isa);
      }
    }
  }
}

// Returns the step of the tables of the columns [c, c + columns), from the definition.
double step_of(const PanelMatrix& w, const int8_t* q, int64_t columns) {
  int largest = 0;
  for (int64_t v = 0; v < columns / kProductValues; ++v) {
    const int8_t* a = q + detail::vector_column(static_cast<int>(v));
    int top = 0, signs = 0;
    for (int p = 0; p < kProductEntries; ++p) {
      int sum = 0;
      for (int i = 0; i < kProductValues; ++i)
        sum += (w.codebook.data()[p * kProductValues + i] - w.product->residual) * a[4 * i];
      top = std::max(top, std::abs(sum));
    }
    for (int i = 0; i < kProductValues; ++i)
      signs += w.product->residual * std::abs(a[4 * i]);
    largest = std::max(largest, top + signs);
  }
  return largest / 126.0 * 1.01;  // the multiplier is rounded down to a whole number
}

TEST(ProductLookup, IsWithinItsBoundOfTheExactProduct) {
  for (const char* name : {"pq3", "pq3:layer"}) {
    const RandomProduct t(name, 70, 480, 77, 60);
    const PanelMatrix w = pack_panels(t.tensor, 0);
    const auto x = activations(1, w.cols, kActivationGroup, 1, 78);
    const int64_t ldy = w.rows;
    std::vector<float> exact(static_cast<size_t>(ldy)), y(exact);
    ops(Isa::ref).matmul_i8({w, x, 1, exact.data(), ldy, 0, w.panels(), false});
    ops(supported_isas().back()).matmul_lookup({w, x, 1, y.data(), ldy, 0, w.panels(), false});
    double error = 0, norm = 0;
    for (int64_t row = 0; row < w.rows; ++row) {
      double bound = 1e-5;
      for (int64_t c = 0, g = 0; c < w.cols; c += 128, ++g) {
        const int64_t columns = std::min<int64_t>(128, w.cols - c);
        const int64_t at = (row / 16 * ceil_div(w.cols, 128) + g) * 16 + row % 16;
        const double scale = std::fabs(f16_to_f32(w.scales.data()[at]) * w.product->unit);
        bound += static_cast<double>(columns / kProductValues) *
                 step_of(w, x.q.data() + c, columns) * scale *
                 static_cast<double>(x.scales.data()[g]);
      }
      const double difference = static_cast<double>(y[static_cast<size_t>(row)]) -
                                static_cast<double>(exact[static_cast<size_t>(row)]);
      EXPECT_LE(std::fabs(difference), bound) << name << " row " << row;
      error += difference * difference;
      norm += std::pow(static_cast<double>(exact[static_cast<size_t>(row)]), 2);
    }
    EXPECT_LT(error / norm, 1e-3) << name << ": far below the error of the weights, 0.026";
    EXPECT_GT(error, 0.0);
  }
}

TEST(ProductLookup, SaturatesProductsOfHostileCodebooksAlike) {
  const RandomProduct t("pq3:layer", 33, 128, 5, 104);
  Tensor tensor = t.tensor;
  std::vector<std::byte> top(kCodebookBytes, std::byte{104});
  tensor.pass[0].codebook = top;
  const PanelMatrix w = pack_panels(tensor, 0);
  ActivationsI8 x(1, 128, kActivationGroup, 1);
  std::fill(x.q.begin(), x.q.end(), int8_t{127});
  x.scales[0] = 0.01f;
  const auto want = run(Isa::ref, w, x, 1, false);
  for (const Isa isa : supported_isas())
    EXPECT_TRUE(same_bits(run(isa, w, x, 1, false), want)) << isa_name(isa);
}

TEST(ProductLookup, ZeroActivationsGiveZerosAndNanStaysNan) {
  const RandomProduct t("pq3", 40, 256, 6);
  const PanelMatrix w = pack_panels(t.tensor, 0);
  std::vector<float> row(256, 0.0f);
  row[200] = std::numeric_limits<float>::quiet_NaN();
  ActivationsI8 zero(1, 256, kActivationGroup, 1), bad(1, 256, kActivationGroup, 1);
  ops(Isa::ref).quantize_i8(std::vector<float>(256, 0.0f).data(), zero, 0);
  ops(Isa::ref).quantize_i8(row.data(), bad, 0);
  for (const Isa isa : supported_isas()) {
    std::vector<float> y(40, 1.0f);
    ops(isa).matmul_lookup({w, zero, 1, y.data(), 40, 0, w.panels(), false});
    for (const float v : y)
      EXPECT_EQ(v, 0.0f) << isa_name(isa);
    ops(isa).matmul_lookup({w, bad, 1, y.data(), 40, 0, w.panels(), false});
    for (const float v : y)
      EXPECT_TRUE(std::isnan(v)) << isa_name(isa);
  }
}

}  // namespace
}  // namespace walsh
