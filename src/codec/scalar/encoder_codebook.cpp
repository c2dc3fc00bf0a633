#include "codec/scalar/encoder_codebook.h"

#include <algorithm>

namespace walsh::detail {

Codebook::Codebook(const ScalarCode& code) {
  const int size = 1 << code.bits;
  uint8_t order[kMaxLevels];
  for (int i = 0; i < size; ++i)
    order[i] = static_cast<uint8_t>(i);
  std::stable_sort(order, order + size,
                   [&](uint8_t a, uint8_t b) { return code.levels[a] < code.levels[b]; });
  for (int i = 0; i < size; ++i) {
    const float level = code.levels[order[i]];
    if (count_ > 0 && level == levels_[count_ - 1]) continue;
    codes_[count_] = order[i];
    levels_[count_++] = level;
  }
  for (int i = 0; i + 1 < count_; ++i)
    midpoints_[i] = (levels_[i] + levels_[i + 1]) / 2;
  const float* zero = std::find_if(levels_, levels_ + count_ - 1, [](float l) { return l >= 0; });
  zero_code_ = codes_[zero - levels_];
}

Ladder Codebook::ladder(float scale, float level_scale) const {
  Ladder ladder;
  ladder.count = count_;
  for (int i = 0; i < count_; ++i)
    ladder.levels[i] = levels_[i] * level_scale;
  for (int i = 0; i + 1 < count_; ++i)
    ladder.thresholds[i] = midpoints_[i] * scale;
  return ladder;
}

}  // namespace walsh::detail
