// Holds rows as a cache type stores them, decoded by the scalar code, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "cache/encode.h"
#include "codec/tensor.h"

namespace walsh::test {

inline std::vector<float> normal_rows(int64_t rows, int64_t cols, uint64_t seed, double size = 1) {
  Random random(seed);
  std::vector<float> x(static_cast<size_t>(rows * cols));
  for (float& v : x)
    v = static_cast<float>(size * random.normal());
  return x;
}

// Holds rows [rows][cols], cols being a padded length: encoded, or rounded to fp16.
class StoredRows {
 public:
  StoredRows(const CacheType& type, std::vector<float> x, int64_t cols)
      : type_(&type), cols_(cols), x_(std::move(x)) {
    const int64_t rows = static_cast<int64_t>(x_.size()) / cols;
    if (!type.coded) return;
    const int64_t bytes = code_bytes_per_row(type.code, cols);
    groups_ = groups_per_row(type.code, cols);
    packed_.resize(static_cast<size_t>(rows * bytes));
    scales_.resize(static_cast<size_t>(rows * groups_));
    encode_cache_rows(type, x_.data(), rows, cols, packed_.data(), scales_.data());
    codes_.resize(x_.size());
    for (int64_t r = 0; r < rows; ++r) {
      unpack_codes(type.code, packed_.data() + r * bytes, cols, codes_.data() + r * cols);
    }
  }

  const std::vector<std::byte>& packed() const { return packed_; }
  const std::vector<uint16_t>& scales() const { return scales_; }
  // Returns the given rows as the encoder left them.
  const std::vector<float>& input() const { return x_; }

  uint8_t code(int64_t row, int64_t col) const {
    return codes_[static_cast<size_t>(row * cols_ + col)];
  }
  float scale(int64_t row, int64_t col) const {
    return f16_to_f32(scales_[static_cast<size_t>(row * groups_ + col / (cols_ / groups_))]);
  }
  float level(int64_t row, int64_t col) const {
    if (type_->code.bits == 8) return static_cast<int8_t>(code(row, col));
    return type_->code.levels[code(row, col)];
  }
  // Returns the level that the integer kernels have for it.
  float level_i8(int64_t row, int64_t col) const {
    if (type_->code.bits == 8) return type_->code.unit * level(row, col);
    return type_->code.unit * static_cast<float>(type_->code.levels_i8[code(row, col)]);
  }
  float value(int64_t row, int64_t col) const {
    if (type_->coded) return scale(row, col) * level(row, col);
    return f16_to_f32(f32_to_f16(x_[static_cast<size_t>(row * cols_ + col)]));
  }
  float value_i8(int64_t row, int64_t col) const {
    return type_->coded ? scale(row, col) * level_i8(row, col) : value(row, col);
  }

 private:
  const CacheType* type_;
  int64_t cols_, groups_ = 0;
  std::vector<float> x_;
  std::vector<std::byte> packed_;
  std::vector<uint16_t> scales_;
  std::vector<uint8_t> codes_;
};

}  // namespace walsh::test
