// Tests the layout of product codes and their decoded values.
#include "codec/product/product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "codec/tensor.h"
#include "walsh/error.h"

namespace walsh {
namespace {

const ProductCode& universal() {
  return get_format("pq3").product;
}

std::vector<std::byte> random_bytes(int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  for (std::byte& b : bytes)
    b = static_cast<std::byte>(random.next() & 0xff);
  return bytes;
}

TEST(ProductFormats, Cost100BytesPer256Weights) {
  const Format& pq3 = get_format("pq3");
  EXPECT_EQ(tensor_bytes(pq3, 1, 256), 100u);
  EXPECT_DOUBLE_EQ(nominal_bits(pq3), 3.125);
  const Format& layer = get_format("pq3:layer");
  EXPECT_EQ(tensor_bytes(layer, 3, 256), 3 * 100u + 1024u) << "its codebook counts";
  EXPECT_EQ(tensor_bytes(pq3, 1, 129), 5 * 12u + 2 * 2u) << "rows are padded to 32";
  EXPECT_THROW(get_format("pq3:full"), Error);
}

TEST(ProductFormats, TheCodebookLeavesRoomForTheResidualAndStartsWithShortVectors) {
  const ProductCode& code = universal();
  EXPECT_NO_THROW(check_codebook(code, code.codebook));
  int before = 0;
  for (int p = 0; p < kProductEntries; ++p) {
    int squares = 0;
    for (int i = 0; i < kProductValues; ++i)
      squares += code.codebook[p * kProductValues + i] * code.codebook[p * kProductValues + i];
    EXPECT_GE(squares, before) << p;
    before = squares;
  }
  std::vector<int8_t> wide(code.codebook, code.codebook + kCodebookBytes);
  for (const int value : {127 - code.residual + 1, -(127 - code.residual + 1), -128}) {
    wide[77] = static_cast<int8_t>(value);
    EXPECT_THROW(check_codebook(code, wide.data()), Error) << value;
  }
}

// Training gives this property: every entry is the mean of what is assigned to it.
TEST(ProductFormats, EveryEntryIsTheMeanOfItsCell) {
  const ProductCode& code = universal();
  constexpr int kSamples = 1 << 16;
  Random random(5);
  std::vector<double> sums(kCodebookBytes, 0.0);
  std::vector<int> counts(kProductEntries, 0);
  double error = 0;
  for (int n = 0; n < kSamples; ++n) {
    double x[kProductValues];
    for (double& v : x)
      v = random.normal() / static_cast<double>(code.unit);
    int best = 0;
    double least = 1e30;
    for (int p = 0; p < kProductEntries; ++p) {
      double cost = 0;
      for (int i = 0; i < kProductValues; ++i)
        cost +=
            std::pow(std::fabs(x[i] - code.codebook[p * kProductValues + i]) - code.residual, 2);
      if (cost >= least) continue;
      least = cost;
      best = p;
    }
    error += least;
    ++counts[static_cast<size_t>(best)];
    for (int i = 0; i < kProductValues; ++i) {
      const bool above = x[i] >= code.codebook[best * kProductValues + i];
      sums[static_cast<size_t>(best * kProductValues + i)] +=
          above ? x[i] - code.residual : x[i] + code.residual;
    }
  }
  double moved = 0;
  for (int p = 0; p < kProductEntries; ++p) {
    ASSERT_GT(counts[static_cast<size_t>(p)], 20) << p;
    for (int i = 0; i < kProductValues; ++i) {
      const auto at = static_cast<size_t>(p * kProductValues + i);
      moved += std::pow(sums[at] / counts[static_cast<size_t>(p)] - code.codebook[at], 2);
    }
  }
  // The bounds allow for rounding to whole units, and for the sampling error of cells of 256
  // samples whose weights scatter by about 0.166 / 0.0277 units.
  EXPECT_LT(std::sqrt(moved / kCodebookBytes), 0.75);
  const double unit = static_cast<double>(code.unit);
  EXPECT_LT(error * unit * unit / (kSamples * kProductValues), 0.0280);
}

TEST(ProductCode, PointersAndSignsOfAPackedRowComeBack) {
  constexpr int64_t kCols = 96;
  Random random(9);
  std::vector<uint8_t> pointers(kCols / kProductValues), negative(kCols);
  for (uint8_t& p : pointers)
    p = static_cast<uint8_t>(random.below(256));
  for (uint8_t& n : negative)
    n = static_cast<uint8_t>(random.below(2));
  std::vector<std::byte> row(static_cast<size_t>(product_row_bytes(kCols)));
  pack_product_row(pointers.data(), negative.data(), kCols, row.data());
  std::set<std::pair<int64_t, int>> places;
  for (int64_t col = 0; col < kCols; ++col) {
    const int64_t vector = col / 16 * 4 + product_vector(col);
    EXPECT_EQ(product_pointer(row.data(), col), pointers[static_cast<size_t>(vector)]) << col;
    EXPECT_EQ(product_negative(row.data(), col), negative[static_cast<size_t>(col)] != 0) << col;
    places.insert({vector, product_value(col)});
  }
  EXPECT_EQ(places.size(), static_cast<size_t>(kCols)) << "every weight has its own place";
}

// Two units are set by hand: pointer 1 of vector 2 of the second half, signs of columns 18 and 31.
TEST(ProductCode, BytesMeanWhatTheDocumentSays) {
  std::vector<std::byte> row(12, std::byte{0});
  row[4 + 2] = std::byte{1};       // columns 18, 22, 26, 30
  row[8 + 2] = std::byte{1 << 4};  // column 4 * 4 + 2 = 18
  row[8 + 3] = std::byte{1 << 7};  // column 31
  const ProductCode& code = universal();
  for (int64_t col = 0; col < 32; ++col) {
    const bool second = col >= 16 && col % 4 == 2;
    const int entry = code.codebook[(second ? 4 : 0) + col % 16 / 4];
    const int sign = col == 18 || col == 31 ? -1 : 1;
    EXPECT_EQ(product_level_i8(code, code.codebook, row.data(), col), entry + sign * code.residual)
        << col;
  }
}

TEST(ProductDecode, IsScaleTimesEntryPlusOrMinusTheResidual) {
  for (const char* name : {"pq3", "pq3:layer"}) {
    const Format& format = get_format(name);
    const int64_t rows = 3, cols = 200, padded = 224;
    Tensor tensor;
    tensor.format = &format;
    tensor.rows = rows;
    tensor.cols = cols;
    std::vector<std::vector<std::byte>> arrays;
    std::vector<std::span<const std::byte>> spans;
    for (const ArraySpec& spec : array_specs(format, rows, cols))
      arrays.push_back(random_bytes(static_cast<int64_t>(spec.bytes), 3 + arrays.size()));
    const std::vector<uint16_t> scales = {f32_to_f16(0.5f), f32_to_f16(-2.0f), f32_to_f16(0.25f),
                                          f32_to_f16(0.0f), f32_to_f16(1.0f),  f32_to_f16(3.0f)};
    std::memcpy(arrays[1].data(), scales.data(), 12);
    for (auto& array : arrays) {
      if (array.size() == kCodebookBytes) {
        for (std::byte& b : array)
          b = static_cast<std::byte>(static_cast<int>(b) % 101 - 50);
      }
      spans.emplace_back(array);
    }
    bind_arrays(tensor, spans);
    std::vector<float> out(static_cast<size_t>(padded));
    for (int64_t row = 0; row < rows; ++row) {
      decode_pass_row(tensor, 0, row, out.data());
      const std::byte* codes = arrays[0].data() + row * product_row_bytes(padded);
      for (int64_t col = 0; col < padded; ++col) {
        const float scale = f16_to_f32(scales[static_cast<size_t>(2 * row + col / 128)]);
        const int level = product_level_i8(format.product, product_codebook(tensor), codes, col);
        EXPECT_EQ(out[static_cast<size_t>(col)],
                  scale * (format.product.unit * static_cast<float>(level)));
      }
    }
  }
}

}  // namespace
}  // namespace walsh
