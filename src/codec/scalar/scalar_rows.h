// Holds rows that are rounded value by value, with scales that are chosen when their group is
// reached. The encoders of scalar codes with error feedback share this.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/aligned.h"
#include "codec/format.h"
#include "codec/scalar/encoder.h"
#include "codec/scalar/encoder_codebook.h"

namespace walsh::detail {

// Finds the nearest value of a scalar code at a scale and offset.
class ValueRounder {
 public:
  explicit ValueRounder(const ScalarCode& code);

  struct Rounded {
    uint8_t code;
    float value;
  };
  Rounded operator()(float x, float scale, float offset) const;

 private:
  std::optional<Codebook> codebook_;
  Ladder ladder_{};
};

class ScalarRows {
 public:
  // Holds `count` rows of `padded` columns.
  ScalarRows(const ScalarCode& code, const EncodeOptions& options, int64_t count, int64_t padded);

  int64_t group() const { return group_; }
  // Encodes columns [begin, end) of a row. target(j) must return what column j should be rounded
  // to, after set(j, value) was called for all columns before it. At the beginning of a group,
  // target is called for all of its columns.
  template <class Target, class Set>
  void encode(int64_t r, int64_t begin, int64_t end, const Target& target, const Set& set) {
    std::vector<float> wanted(static_cast<size_t>(group_));
    for (int64_t j = begin; j < end; ++j) {
      if (j % group_ == 0) {
        const int64_t n = std::min(group_, padded_ - j);
        for (int64_t i = 0; i < n; ++i)
          wanted[static_cast<size_t>(i)] = target(j + i);
        choose_scales(r, j, wanted.data(), n);
      }
      set(j, round(r, j, target(j)));
    }
  }
  // Stores the codes and scales of a row at its places in `out`. Scales and offsets are multiplied
  // by the factor.
  void store(int64_t r, double factor, const PassOutput& out) const;
  // Returns whether scales may get a factor in the end.
  bool has_factors() const;

 private:
  // Holds the scales of a row as they are stored.
  struct RowScales {
    std::vector<uint16_t> scales, offsets, sub_scales;
  };
  // Chooses the scales with the plain encoder, whose codes are not needed.
  void choose_scales(int64_t r, int64_t begin, const float* wanted, int64_t n);
  float round(int64_t r, int64_t j, float target);

  const ScalarCode& code_;
  const EncodeOptions& options_;
  int64_t padded_, group_;
  ValueRounder round_;
  std::vector<uint8_t> codes_;  // Its shape is [rows][padded].
  std::vector<RowScales> rows_;
};

}  // namespace walsh::detail
