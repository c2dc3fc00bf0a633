// Holds the distinct levels of a scalar code in ascending order, and quantizes to the nearest level
// at a scale.
#pragma once

#include "codec/format.h"
#include "codec/scalar/encoder_kernels.h"

namespace walsh::detail {

class Codebook {
 public:
  // `code` must have levels. Codes with equal levels count once, as the lowest of them.
  explicit Codebook(const ScalarCode& code);

  // Makes the ladder whose thresholds are midpoints times `scale`, and whose levels are multiplied
  // by `level_scale`.
  Ladder ladder(float scale, float level_scale) const;
  // Returns the code of the level with this rank.
  uint8_t code(uint8_t rank) const { return codes_[rank]; }
  // Returns the code of a group with scale 0: the smallest level that is not negative, so that it
  // decodes to +0.
  uint8_t zero_code() const { return zero_code_; }

 private:
  int count_ = 0;
  float levels_[kMaxLevels] = {};
  float midpoints_[kMaxLevels - 1] = {};
  uint8_t codes_[kMaxLevels] = {};
  uint8_t zero_code_ = 0;
};

}  // namespace walsh::detail
