#include "generate/draft_depth.h"

#include <algorithm>

namespace walsh {
namespace {

constexpr double kFading = 0.9;
constexpr int64_t kSkipped = 15;  // at most this many drafts in a row are left out

}  // namespace

// A draft is right up to its first wrong token, in whose place the model gives its own. If a share
// a of guesses is right, k guesses give 1 + a + ... + a^k tokens.
int64_t DraftDepth::choose(const DraftCosts& costs, int64_t texts, int64_t most) {
  most = std::min(most, kMost);
  if (most <= 0) return 0;
  int64_t best = 0;
  double tokens = 1, more = 1, best_rate = 1;
  const auto rows = static_cast<double>(texts);
  const double alone = 1 + (rows - 1) * costs.row;
  for (int64_t k = 1; k <= most; ++k) {
    more *= share();
    tokens += more;
    const double time = alone + static_cast<double>(k) * (rows * costs.row + costs.draft);
    const double rate = tokens / time * alone;
    if (rate <= best_rate) continue;
    best_rate = rate;
    best = k;
  }
  if (best == 0 && skipped_++ < kSkipped) return 0;
  skipped_ = 0;
  return std::max<int64_t>(1, best);
}

void DraftDepth::judge(size_t drafted, size_t right) {
  right_ = kFading * right_ + static_cast<double>(right);
  wrong_ = kFading * wrong_ + (right < drafted ? 1.0 : 0.0);
}

}  // namespace walsh
