#include "weights/stored/scaled_values.h"

#include <algorithm>
#include <array>

#include "base/half.h"
#include "base/small_floats.h"
#include "codec/panels.h"

namespace walsh {
namespace {

constexpr int64_t kGroup = 32, kGroupBytes = kGroup / 2;  // Groups of MXFP4 have these sizes.

template <size_t Count>
std::array<float, Count> table_of(float (*value)(uint8_t)) {
  std::array<float, Count> table;
  for (size_t code = 0; code < Count; ++code)
    table[code] = value(static_cast<uint8_t>(code));
  return table;
}

class Fp8Matrix : public StoredMatrix {
 public:
  Fp8Matrix(StoredArray values, std::vector<float> scales, int64_t block_rows, int64_t block_cols)
      : StoredMatrix(values.shape[0], values.shape[1]),
        values_(std::move(values)),
        scales_(std::move(scales)),
        block_rows_(block_rows),
        block_cols_(block_cols) {}

 private:
  void decode(int64_t first, int64_t count, std::byte* out) const override {
    const auto table = table_of<256>(e4m3_to_f32);
    const int64_t across = ceil_div(cols(), block_cols_);
    auto* to = reinterpret_cast<float*>(out);
    const std::byte* from = values_.data.data() + first * cols();
    for (int64_t row = first; row < first + count; ++row, from += cols(), to += cols()) {
      const float* of_row = scales_.data() + row / block_rows_ * across;
      for (int64_t begin = 0; begin < cols(); begin += block_cols_) {
        const float factor = of_row[begin / block_cols_];
        for (int64_t c = begin; c < std::min(cols(), begin + block_cols_); ++c)
          to[c] = table[static_cast<size_t>(from[c])] * factor;
      }
    }
  }

  StoredArray values_;
  std::vector<float> scales_;
  int64_t block_rows_, block_cols_;
};

class Mxfp4Matrix : public StoredMatrix {
 public:
  Mxfp4Matrix(StoredArray blocks, StoredArray scales, int64_t rows, int64_t groups)
      : StoredMatrix(rows, groups * kGroup, DType::bf16),
        blocks_(std::move(blocks)),
        scales_(std::move(scales)) {}

 private:
  void decode(int64_t first, int64_t count, std::byte* out) const override {
    const int64_t groups = cols() / kGroup;
    const std::byte* from = blocks_.data.data() + first * groups * kGroupBytes;
    const std::byte* scale = scales_.data.data() + first * groups;
    auto* to = reinterpret_cast<uint16_t*>(out);
    for (uint16_t* end = to + count * cols(); to != end; to += kGroup) {
      const float factor = e8m0_to_f32(static_cast<uint8_t>(*scale++));
      for (int64_t i = 0; i < kGroupBytes; ++i) {
        const auto pair = static_cast<uint8_t>(*from++);
        to[2 * i] = f32_to_bf16(e2m1_to_f32(pair & 15) * factor);
        to[2 * i + 1] = f32_to_bf16(e2m1_to_f32(pair >> 4) * factor);
      }
    }
  }

  StoredArray blocks_, scales_;
};

class Fp4Matrix : public StoredMatrix {
 public:
  Fp4Matrix(StoredArray values, StoredArray scales, bool powers, float divisor)
      : StoredMatrix(values.shape[0], 2 * values.shape[1]),
        values_(std::move(values)),
        scales_(std::move(scales)),
        divisor_(divisor) {
    if (powers) scales_.dtype = "F8_E8M0";
  }

 private:
  void decode(int64_t first, int64_t count, std::byte* out) const override {
    const auto table = table_of<16>(e2m1_to_f32);
    const int64_t groups = scales_.shape[1], group = cols() / groups;
    std::vector<float> scales(static_cast<size_t>(groups));
    auto* to = reinterpret_cast<float*>(out);
    const std::byte* from = values_.data.data() + first * cols() / 2;
    for (int64_t row = first; row < first + count; ++row) {
      read_floats(scales_, row * groups, groups, scales.data());
      for (const float scale : scales) {
        const float factor = scale / divisor_;
        for (int64_t c = 0; c < group; c += 2, to += 2) {
          const auto pair = static_cast<uint8_t>(*from++);
          to[0] = table[pair & 15] * factor;
          to[1] = table[pair >> 4] * factor;
        }
      }
    }
  }

  StoredArray values_, scales_;
  float divisor_;
};

constexpr StoredNames kFp8Forms[] = {
    {"", "", "F8_E4M3", "",
     [](const StoredParts& parts, const StoredMethod& stored) {
       return open_fp8(parts.get(""), parts.get("_scale_inv"), stored.block_rows,
                       stored.block_cols);
     }},
};
constexpr std::string_view kFp8Unseen[] = {"_scale_inv", ".activation_scale", ".input_scale"};

constexpr StoredNames kMxfp4Forms[] = {
    {"", "_blocks", "", "",
     [](const StoredParts& parts, const StoredMethod&) {
       return open_mxfp4(parts.get("_blocks"), parts.get("_scales"));
     },
     true},
};
constexpr std::string_view kMxfp4Unseen[] = {"_scales"};

}  // namespace

constinit const StoredKind kStoredFp8 = {
    StoredMethod::Kind::fp8, "FP8", false, false, kFp8Forms, kFp8Unseen};
constinit const StoredKind kStoredMxfp4 = {
    StoredMethod::Kind::mxfp4, "MXFP4", true, false, kMxfp4Forms, kMxfp4Unseen};

StoredMatrixPtr open_fp8(const StoredArray& values, const StoredArray& scales, int64_t block_rows,
                         int64_t block_cols) {
  expect_matrix(values, "F8_E4M3");
  const int64_t rows = values.shape[0], cols = values.shape[1];
  const bool single = block_rows == 0;
  if (single) {
    block_rows = rows;
    block_cols = cols;
  }
  const int64_t down = ceil_div(rows, block_rows), across = ceil_div(cols, block_cols);
  // Scales are checked before they are read: nothing is allocated for scales that do not fit, and
  // none are empty.
  const bool fits = single
                        ? std::ranges::all_of(scales.shape, [](int64_t size) { return size == 1; })
                        : has_shape(scales, {down, across});
  if (!fits)
    refuse_array(scales, single ? "one scale" : "scales " + shape_text(std::array{down, across}));
  return std::make_unique<Fp8Matrix>(values, read_floats(scales), block_rows, block_cols);
}

StoredMatrixPtr open_mxfp4(const StoredArray& blocks, const StoredArray& scales) {
  const size_t rank = blocks.shape.size();
  if (blocks.dtype != "U8" || rank < 3 || blocks.shape[rank - 1] != kGroupBytes ||
      blocks.data.empty())
    refuse_array(blocks, "U8 [..., rows, groups, 16] that is not empty");
  const auto shape = blocks.shape.first(rank - 1);
  if (scales.dtype != "U8" || !std::ranges::equal(scales.shape, shape))
    refuse_array(scales, "U8 " + shape_text(shape));
  const int64_t groups = shape.back();
  const int64_t rows = static_cast<int64_t>(blocks.data.size()) / kGroupBytes / groups;
  return std::make_unique<Mxfp4Matrix>(blocks, scales, rows, groups);
}

StoredMatrixPtr open_fp4(const StoredArray& values, const StoredArray& scales, bool powers,
                         float divisor) {
  expect_matrix(values, "U8");
  const int64_t group = powers ? kGroup : 16;
  const int64_t rows = values.shape[0], cols = 2 * values.shape[1];
  if (cols % group != 0)
    refuse_array(values, "rows of groups of " + std::to_string(group / 2) + " bytes");
  expect_array(scales, powers ? "U8" : "F8_E4M3", {rows, cols / group});
  return std::make_unique<Fp4Matrix>(values, scales, powers, divisor);
}

}  // namespace walsh
