// Tests matrices in FP8 and MXFP4 as checkpoints store them.
#include "weights/stored/scaled_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/small_floats.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Array {
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;

  StoredArray view() const { return {dtype, shape, data, "file: tensor x"}; }
};

std::vector<std::byte> bytes(std::initializer_list<int> values) {
  std::vector<std::byte> out;
  for (const int value : values)
    out.push_back(static_cast<std::byte>(value));
  return out;
}

Array floats(std::vector<int64_t> shape, const std::vector<float>& values) {
  const auto raw = std::as_bytes(std::span(values));
  return {"F32", std::move(shape), {raw.begin(), raw.end()}};
}

Tensor decode_fp8(const StoredArray& values, const StoredArray& scales, int64_t block_rows,
                  int64_t block_cols) {
  const StoredMatrixPtr matrix = open_fp8(values, scales, block_rows, block_cols);
  return matrix->load(matrix->dense(), 0, matrix->rows());
}

std::vector<float> rows(const Tensor& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.rows * tensor.cols));
  decode_rows(tensor, 0, tensor.rows, out.data());
  return out;
}

void expect_refused(const std::function<void()>& body, const std::string& part) {
  try {
    body();
    FAIL() << "accepted, expected an error with: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_input);
    EXPECT_THAT(e.what(), HasSubstr("file: tensor x"));
    EXPECT_THAT(e.what(), HasSubstr(part));
  }
}

// The definitions of the formats are written out by their exponents.
TEST(SmallFloats, AllCodes) {
  for (int code = 0; code < 256; ++code) {
    const int sign = code >= 128 ? -1 : 1, exponent = code / 8 % 16, mantissa = code % 8;
    const double value =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    const float found = e4m3_to_f32(static_cast<uint8_t>(code));
    if (code % 128 == 127) {
      EXPECT_TRUE(std::isnan(found)) << code;
    } else {
      EXPECT_EQ(found, static_cast<float>(sign * value)) << code;
    }
    const float power = e8m0_to_f32(static_cast<uint8_t>(code));
    if (code == 255) {
      EXPECT_TRUE(std::isnan(power));
    } else {
      EXPECT_EQ(power, std::ldexp(1.0f, code - 127)) << code;
    }
  }
  const float magnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (int code = 0; code < 16; ++code) {
    EXPECT_EQ(e2m1_to_f32(static_cast<uint8_t>(code)),
              code < 8 ? magnitudes[code] : -magnitudes[code - 8]);
  }
}

// 0x38 is 1, 0x40 is 2, 0xb8 is -1.
Array fp8_matrix() {
  return {"F8_E4M3", {2, 3}, bytes({0x38, 0x40, 0xb8, 0x38, 0x38, 0x40})};
}

TEST(ScaledValues, Fp8TimesTheScaleOfItsBlock) {
  const Array scales = floats({2, 2}, {0.1f, 10, 2, 4});
  const Tensor tensor = decode_fp8(fp8_matrix().view(), scales.view(), 1, 2);
  EXPECT_EQ(tensor.format, &dense_format(DType::f32));
  EXPECT_THAT(rows(tensor), ElementsAre(0.1f, 0.2f, -10, 2, 2, 8));
  const Array powers = {"F8_E8M0", {2, 2}, bytes({127, 128, 126, 127})};
  EXPECT_THAT(rows(decode_fp8(fp8_matrix().view(), powers.view(), 1, 2)),
              ElementsAre(1, 2, -2, 0.5f, 0.5f, 2));
}

TEST(ScaledValues, Fp8WithOneScale) {
  const Array half = {"BF16", {}, bytes({0x00, 0x3f})};
  EXPECT_THAT(rows(decode_fp8(fp8_matrix().view(), half.view(), 0, 0)),
              ElementsAre(0.5f, 1, -0.5f, 0.5f, 0.5f, 1));
  expect_refused(
      [&] {
        decode_fp8(fp8_matrix().view(), floats({2}, {1, 2}).view(), 0, 0);
      },
      "expected one scale");
}

// Copying from the null pointer of an empty array is undefined, which a sanitizer reports.
TEST(ScaledValues, Fp8ShapesOfScalesAreCheckedBeforeTheyAreRead) {
  expect_refused(
      [&] {
        decode_fp8(fp8_matrix().view(), floats({2, 0}, {}).view(), 0, 0);
      },
      "expected one scale");
  expect_refused(
      [&] {
        decode_fp8(fp8_matrix().view(), floats({0, 2}, {}).view(), 1, 2);
      },
      "expected scales [2, 2]");
  const Array other = {"F64", {3}, std::vector<std::byte>(24)};
  expect_refused([&] { decode_fp8(fp8_matrix().view(), other.view(), 0, 0); },
                 "expected one scale");
}

TEST(ScaledValues, Fp8OfOtherTypesAndShapesIsRefused) {
  const Array scales = floats({2, 2}, {1, 1, 1, 1});
  Array matrix = fp8_matrix();
  matrix.dtype = "F8_E5M2";
  expect_refused([&] { decode_fp8(matrix.view(), scales.view(), 1, 2); }, "F8_E4M3");
  matrix = fp8_matrix();
  matrix.shape = {6};
  expect_refused([&] { decode_fp8(matrix.view(), scales.view(), 1, 2); }, "a matrix");
  expect_refused(
      [&] {
        decode_fp8(fp8_matrix().view(), floats({1, 2}, {1, 1}).view(), 1, 2);
      },
      "expected scales [2, 2]");
  const Array wrong = {"I8", {2, 2}, bytes({1, 1, 1, 1})};
  expect_refused([&] { decode_fp8(fp8_matrix().view(), wrong.view(), 1, 2); }, "F8_E8M0");
}

TEST(ScaledValues, Mxfp4RowsOfExperts) {
  Array blocks = {"U8", {2, 1, 1, 16}, std::vector<std::byte>(32)};
  blocks.data[0] = std::byte{0x72};   // 1, then 6
  blocks.data[16] = std::byte{0x1f};  // -6, then 0.5
  const Array scales = {"U8", {2, 1, 1}, bytes({127, 130})};
  const StoredMatrixPtr matrix = open_mxfp4(blocks.view(), scales.view());
  EXPECT_EQ(matrix->rows(), 2);
  const Tensor tensor = matrix->load(matrix->dense(), 0, 2);
  EXPECT_EQ(tensor.format, &dense_format(DType::bf16));
  EXPECT_EQ(tensor.rows, 2);
  EXPECT_EQ(tensor.cols, 32);
  const auto all = rows(tensor);
  EXPECT_EQ(all[0], 1);
  EXPECT_EQ(all[1], 6);
  EXPECT_EQ(all[32], -48);
  EXPECT_EQ(all[33], 4);
  EXPECT_EQ(rows(matrix->load(matrix->dense(), 1, 1))[0], -48);
  const Array few = {"U8", {2, 1}, bytes({127, 130})};
  expect_refused([&] { open_mxfp4(blocks.view(), few.view()); }, "expected U8 [2, 1, 1]");
  blocks.shape = {2, 2, 8};
  expect_refused([&] { open_mxfp4(blocks.view(), scales.view()); }, "[..., rows, groups, 16]");
}

}  // namespace
}  // namespace walsh
