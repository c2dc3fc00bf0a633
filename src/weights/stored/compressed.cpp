// Reads compressed-tensors, which llm-compressor writes
// (https://github.com/vllm-project/compressed-tensors). Weights are integers in 32-bit words
// (`pack-quantized`) or bytes (`int-quantized`), FP8 (`float-quantized`), NVFP4 or MXFP4. A scale
// belongs to all values, a row, a block, or a group of columns of a row.
#include <algorithm>
#include <array>
#include <cmath>

#include "codec/panels.h"
#include "weights/stored/integers.h"
#include "weights/stored/scaled_values.h"

namespace walsh {
namespace {

constexpr std::string_view kScale = ".weight_scale", kZero = ".weight_zero_point",
                           kIndex = ".weight_g_idx", kPacked = ".weight_packed", kPlain = ".weight",
                           kGlobal = ".weight_global_scale", kShape = ".weight_shape";

// A scale is for this many rows and columns.
struct ScaleBlock {
  int64_t rows = 0, cols = 0;
};

// Refuses scales that have the shape of none of the ways that the config names.
ScaleBlock scale_block(const StoredArray& scales, int64_t rows, int64_t cols,
                       const StoredMethod& stored) {
  expect_floats(scales);
  if (std::ranges::all_of(scales.shape, [](int64_t size) { return size == 1; }))
    return {rows, cols};
  if (has_shape(scales, {rows, 1}) || has_shape(scales, {rows})) return {1, cols};
  for (const int64_t group : stored.groups) {
    if (group > 0 && cols % group == 0 && has_shape(scales, {rows, cols / group}))
      return {1, group};
  }
  const int64_t r = stored.block_rows, c = stored.block_cols;
  if (r > 0 && has_shape(scales, {ceil_div(rows, r), ceil_div(cols, c)})) return {r, c};
  refuse_array(scales, "one scale, or scales per row, group or block of a matrix " +
                           shape_text(std::array{rows, cols}));
}

// Reads integers whose codes lie row by row.
class CompressedIntegers : public IntegerMatrix {
 public:
  CompressedIntegers(IntegerLayout layout, ScaleBlock block, StoredArray codes, StoredArray scales,
                     std::optional<StoredArray> zeros)
      : IntegerMatrix(std::move(layout)),
        block_(block),
        codes_(std::move(codes)),
        scales_(std::move(scales)),
        zeros_(std::move(zeros)) {}

 private:
  void read_codes(int64_t first, int64_t count, uint8_t* out) const override {
    const int64_t columns = cols();
    if (codes_.dtype == "I8") {
      const std::byte* from = codes_.data.data() + first * columns;
      for (int64_t i = 0; i < count * columns; ++i)
        out[i] = static_cast<uint8_t>(static_cast<uint8_t>(from[i]) ^ 0x80);
      return;
    }
    const int bits = layout().bits;
    const int64_t words = codes_.shape[1];
    for (int64_t row = first; row < first + count; ++row) {
      const auto word_at = [&](int64_t k) {
        return value_at<uint32_t>(codes_.data, static_cast<size_t>(row * words + k));
      };
      for (int64_t c = 0; c < columns; ++c)
        *out++ = static_cast<uint8_t>(number_at(word_at, c, bits));
    }
  }

  void read_groups(int64_t first, int64_t count, float* scales, int16_t* zeros) const override {
    const int64_t groups = layout().groups, bits = layout().bits;
    const int zero = layout().zero;
    for (int64_t row = first; row < first + count; ++row, scales += groups, zeros += groups) {
      const int64_t at = row / block_.rows * groups;
      read_floats(scales_, at, groups, scales);
      for (int64_t g = 0; zeros_ && g < groups; ++g) {
        // A word holds numbers of consecutive rows.
        const auto word_at = [&](int64_t k) {
          return value_at<uint32_t>(zeros_->data, static_cast<size_t>(k * groups + g));
        };
        zeros[g] = static_cast<int16_t>(
            zeros_->dtype == "I8"
                ? value_at<int8_t>(zeros_->data, static_cast<size_t>(at + g)) + zero
                : static_cast<int>(number_at(word_at, row, static_cast<int>(bits))));
      }
    }
  }

  ScaleBlock block_;
  StoredArray codes_, scales_;
  std::optional<StoredArray> zeros_;
};

StoredMatrixPtr open_integers(const StoredParts& parts, const StoredMethod& stored,
                              const StoredArray& codes, IntegerLayout layout) {
  const StoredArray scales = parts.get(kScale);
  const ScaleBlock block = scale_block(scales, layout.rows, layout.cols, stored);
  layout.groups = ceil_div(layout.cols, block.cols);
  layout.group_cols = block.cols;
  layout.zero = 1 << (layout.bits - 1);
  layout.group_of = read_group_index(parts, kIndex, layout.cols, layout.groups, layout.group_cols);
  const auto zeros = parts.find(kZero);
  if (zeros && zeros->dtype == "I32" && codes.dtype != "I8") {
    if (block.rows != 1) refuse_array(*zeros, "no packed zero points beside blocks of rows");
    expect_array(*zeros, "I32", {words_of(layout.rows, layout.bits), layout.groups});
  } else if (zeros && (zeros->dtype != "I8" || !std::ranges::equal(zeros->shape, scales.shape))) {
    refuse_array(*zeros, "I8 " + shape_text(scales.shape));
  }
  return std::make_unique<CompressedIntegers>(std::move(layout), block, codes, scales, zeros);
}

StoredMatrixPtr open_packed(const StoredParts& parts, const StoredMethod& stored) {
  const StoredArray codes = parts.get(kPacked), shape = parts.get(kShape);
  expect_matrix(codes, "I32");
  if (!has_shape(shape, {2}) || (shape.dtype != "I64" && shape.dtype != "I32"))
    refuse_array(shape, "I64 [2]");
  const auto size = [&](size_t i) {
    return shape.dtype == "I64" ? value_at<int64_t>(shape.data, i)
                                : value_at<int32_t>(shape.data, i);
  };
  IntegerLayout layout;
  layout.rows = size(0);
  layout.cols = size(1);
  for (const int bits : stored.widths) {
    if (layout.rows == codes.shape[0] && layout.cols > 0 && layout.cols <= codes.shape[1] * 32 &&
        words_of(layout.cols, bits) == codes.shape[1])
      layout.bits = bits;
  }
  if (layout.bits == 0)
    refuse_array(codes, "words of a matrix " + shape_text(std::array{layout.rows, layout.cols}) +
                            " in a width that the config names");
  return open_integers(parts, stored, codes, std::move(layout));
}

StoredMatrixPtr open_bytes(const StoredParts& parts, const StoredMethod& stored) {
  const StoredArray codes = parts.get(kPlain);
  expect_matrix(codes, "I8");
  IntegerLayout layout;
  layout.rows = codes.shape[0];
  layout.cols = codes.shape[1];
  layout.bits = 8;
  return open_integers(parts, stored, codes, std::move(layout));
}

StoredMatrixPtr open_floats(const StoredParts& parts, const StoredMethod& stored) {
  const StoredArray values = parts.get(kPlain), scales = parts.get(kScale);
  expect_matrix(values, "F8_E4M3");
  const int64_t rows = values.shape[0], cols = values.shape[1];
  const ScaleBlock block = scale_block(scales, rows, cols, stored);
  const auto zeros = parts.find(kZero);
  if (zeros && std::ranges::any_of(zeros->data, [](std::byte b) { return b != std::byte{0}; }))
    refuse_array(*zeros, "no zero points beside FP8");
  StoredArray grid = scales;
  const int64_t shape[] = {ceil_div(rows, block.rows), ceil_div(cols, block.cols)};
  grid.shape = shape;
  return open_fp8(values, grid, block.rows, block.cols);
}

StoredMatrixPtr open_nvfp4(const StoredParts& parts, const StoredMethod&) {
  const StoredArray factor = parts.get(kGlobal);
  if (factor.dtype != "F32" || factor.data.size() != sizeof(float)) refuse_array(factor, "one F32");
  const float divisor = value_at<float>(factor.data, 0);
  if (!std::isfinite(divisor) || divisor == 0)
    refuse_array(factor, "a scale that is finite and not 0");
  return open_fp4(parts.get(kPacked), parts.get(kScale), false, divisor);
}

StoredMatrixPtr open_packed_mxfp4(const StoredParts& parts, const StoredMethod&) {
  return open_fp4(parts.get(kPacked), parts.get(kScale), true, 1);
}

constexpr StoredNames kForms[] = {
    {kPlain, kPacked, "I32", "", open_packed},      {kPlain, kPacked, "U8", kGlobal, open_nvfp4},
    {kPlain, kPacked, "U8", "", open_packed_mxfp4}, {kPlain, kPlain, "I8", "", open_bytes},
    {kPlain, kPlain, "F8_E4M3", "", open_floats},
};
// Some are scales of activations and of a cache, which walsh rounds as its own options say.
constexpr std::string_view kUnseen[] = {
    kScale,
    kZero,
    kIndex,
    kGlobal,
    kShape,
    ".input_scale",
    ".k_scale",
    ".v_scale",
    ".q_scale",
    ".input_zero_point",
    ".output_scale",
    ".k_zero_point",
    ".v_zero_point",
    ".input_global_scale",
    ".output_zero_point",
};

}  // namespace

constinit const StoredKind kStoredCompressed = {
    StoredMethod::Kind::compressed, "compressed-tensors", true, true, kForms, kUnseen};

}  // namespace walsh
