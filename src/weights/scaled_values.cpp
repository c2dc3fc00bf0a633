#include "weights/scaled_values.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "base/half.h"
#include "base/small_floats.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr int64_t kGroup = kMxfp4Group, kGroupBytes = kGroup / 2;

[[noreturn]] void refuse(const StoredArray& array, const std::string& expected) {
  throw Error(ErrorCode::bad_input, array.where,
              "found " + std::string(array.dtype) + " " + shape_text(array.shape) + ", expected " +
                  expected);
}

std::vector<float> read_scales(const StoredArray& scales) {
  const std::byte* data = scales.data.data();
  const auto halves = [&](float (*convert)(uint16_t)) {
    std::vector<float> values(scales.data.size() / 2);
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t half;
      std::memcpy(&half, data + 2 * i, sizeof half);
      values[i] = convert(half);
    }
    return values;
  };
  if (scales.dtype == "BF16") return halves(bf16_to_f32);
  if (scales.dtype == "F16") return halves(f16_to_f32);
  if (scales.dtype == "F32") {
    std::vector<float> values(scales.data.size() / 4);
    std::memcpy(values.data(), data, 4 * values.size());
    return values;
  }
  if (scales.dtype != "F8_E8M0") refuse(scales, "scales in F32, BF16, F16 or F8_E8M0");
  std::vector<float> values;
  for (const std::byte code : scales.data)
    values.push_back(e8m0_to_f32(static_cast<uint8_t>(code)));
  return values;
}

template <typename T>
Tensor make_tensor(DType type, int64_t rows, int64_t cols, std::shared_ptr<std::vector<T>> values) {
  Tensor tensor;
  tensor.format = &dense_format(type);
  tensor.rows = rows;
  tensor.cols = cols;
  tensor.data = std::as_bytes(std::span<const T>(*values));
  tensor.owner = std::move(values);
  return tensor;
}

int64_t blocks_of(int64_t size, int64_t block) {
  return (size + block - 1) / block;
}

}  // namespace

std::string shape_text(std::span<const int64_t> shape) {
  std::string result = "[";
  for (const int64_t size : shape)
    result += (result.size() > 1 ? ", " : "") + std::to_string(size);
  return result + "]";
}

Tensor decode_fp8(const StoredArray& values, const StoredArray& scales,
                  const StoredQuantization& stored) {
  if (values.dtype != "F8_E4M3" || values.shape.size() != 2 || values.data.empty())
    refuse(values, "a matrix in F8_E4M3 that is not empty");
  const int64_t rows = values.shape[0], cols = values.shape[1];
  const bool single = stored.block_rows == 0;
  const int64_t block_rows = single ? rows : stored.block_rows;
  const int64_t block_cols = single ? cols : stored.block_cols;
  const int64_t down = blocks_of(rows, block_rows), across = blocks_of(cols, block_cols);
  // Before they are read: nothing is allocated for scales that do not fit, and none are empty.
  const bool fits =
      single ? std::ranges::all_of(scales.shape, [](int64_t size) { return size == 1; })
             : scales.shape.size() == 2 && scales.shape[0] == down && scales.shape[1] == across;
  if (!fits)
    refuse(scales, single ? "one scale" : "scales " + shape_text(std::array{down, across}));
  const std::vector<float> factors = read_scales(scales);
  std::array<float, 256> table;
  for (size_t code = 0; code < table.size(); ++code)
    table[code] = e4m3_to_f32(static_cast<uint8_t>(code));
  auto result = std::make_shared<std::vector<float>>(static_cast<size_t>(rows * cols));
  const std::byte* from = values.data.data();
  float* to = result->data();
  for (int64_t row = 0; row < rows; ++row, from += cols, to += cols) {
    const float* of_row = factors.data() + row / block_rows * across;
    for (int64_t begin = 0; begin < cols; begin += block_cols) {
      const float factor = of_row[begin / block_cols];
      for (int64_t c = begin; c < std::min(cols, begin + block_cols); ++c)
        to[c] = table[static_cast<size_t>(from[c])] * factor;
    }
  }
  return make_tensor(DType::f32, rows, cols, std::move(result));
}

int64_t mxfp4_rows(const StoredArray& blocks) {
  const size_t rank = blocks.shape.size();
  if (blocks.dtype != "U8" || rank < 3 || blocks.shape[rank - 1] != kGroupBytes ||
      blocks.data.empty())
    refuse(blocks, "U8 [..., rows, groups, 16] that is not empty");
  return static_cast<int64_t>(blocks.data.size()) / kGroupBytes / blocks.shape[rank - 2];
}

Tensor decode_mxfp4(const StoredArray& blocks, const StoredArray& scales, int64_t first,
                    int64_t count) {
  const int64_t all = mxfp4_rows(blocks);
  const auto shape = blocks.shape.first(blocks.shape.size() - 1);
  if (scales.dtype != "U8" || !std::ranges::equal(scales.shape, shape))
    refuse(scales, "U8 " + shape_text(shape));
  if (first < 0 || count < 1 || count > all - first)
    throw Error(ErrorCode::internal, blocks.where, "rows that are not there");
  const int64_t groups = shape.back();
  const auto halves = static_cast<size_t>(count * groups * kGroup);
  auto result = std::make_shared<std::vector<uint16_t>>(halves);
  const auto begin = static_cast<size_t>(first * groups);
  const std::byte* from = blocks.data.data() + begin * kGroupBytes;
  const std::byte* scale = scales.data.data() + begin;
  for (uint16_t* to = result->data(); to != result->data() + halves; to += kGroup) {
    const float factor = e8m0_to_f32(static_cast<uint8_t>(*scale++));
    for (int64_t i = 0; i < kGroupBytes; ++i) {
      const auto pair = static_cast<uint8_t>(*from++);
      to[2 * i] = f32_to_bf16(e2m1_to_f32(pair & 15) * factor);
      to[2 * i + 1] = f32_to_bf16(e2m1_to_f32(pair >> 4) * factor);
    }
  }
  return make_tensor(DType::bf16, count, groups * kGroup, std::move(result));
}

}  // namespace walsh
