// Reads whole numbers with a scale and a zero point per group of columns. A value is (code - zero)
// * scale.
#pragma once

#include "weights/stored/form.h"

namespace walsh {

// Describes the matrix of integers that a subclass of IntegerMatrix reads.
struct IntegerLayout {
  int64_t rows = 0, cols = 0, groups = 0;  // a row has this many groups of columns
  int bits = 0;
  int zero = 0;  // All groups have this zero point, unless zeros are stored.
  // This has the group of each column. If it is empty, each group has cols / groups columns, but
  // the last one maybe fewer.
  std::vector<int32_t> group_of = {};
  int64_t group_cols = 0;  // a group has this many columns
};

class IntegerMatrix : public StoredMatrix {
 public:
  explicit IntegerMatrix(IntegerLayout layout)
      : StoredMatrix(layout.rows, layout.cols), layout_(std::move(layout)) {}

  // Returns q4_0 or q8_0, if their scales and codes hold all values. Then groups are whole blocks
  // of 32 columns in their order, and all scales are fp16 numbers.
  const Format* coded() const override;

 protected:
  const IntegerLayout& layout() const { return layout_; }
  // Writes the codes [count][cols] of rows, which are numbers from 0 on.
  virtual void read_codes(int64_t first, int64_t count, uint8_t* codes) const = 0;
  // Writes scales [count][groups] and zero points. Zero points that it leaves alone are
  // layout().zero.
  virtual void read_groups(int64_t first, int64_t count, float* scales, int16_t* zeros) const = 0;

 private:
  void decode(int64_t first, int64_t count, std::byte* out) const override;
  Tensor encode(const Format& format, int64_t first, int64_t count) const override;
  // Calls use(row, codes, scales, zeros) for every row.
  template <typename Use>
  void for_rows(int64_t first, int64_t count, bool codes, Use use) const;

  IntegerLayout layout_;
};

// Returns the group of each column if a tensor tells it. The list is empty where there is none,
// where all are -1, or where groups have `group_cols` columns each, in their order. Refuses numbers
// that no group has.
std::vector<int32_t> read_group_index(const StoredParts& parts, std::string_view ending,
                                      int64_t cols, int64_t groups, int64_t group_cols);

// Returns number `index` of a stream of numbers of `bits` bits in 32-bit words, low bits first;
// word_at(k) returns word k.
template <typename WordAt>
uint32_t number_at(WordAt word_at, int64_t index, int bits) {
  const int64_t bit = index * bits, word = bit / 32;
  uint64_t value = word_at(word);
  if (bit % 32 + bits > 32) value |= uint64_t{word_at(word + 1)} << 32;
  return static_cast<uint32_t>(value >> bit % 32) & ((1u << bits) - 1);
}

// Returns how many words `count` such numbers take.
inline int64_t words_of(int64_t count, int bits) {
  return count / 32 * bits + (count % 32 * bits + 31) / 32;
}

}  // namespace walsh
