#include "schedule/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace walsh {

ScoredToken score_token(std::span<const float> logits, int32_t token, int best) {
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  const auto at = [&](int32_t id) {
    const float logit = logits[static_cast<size_t>(id)];
    return std::isnan(logit) ? kNothing : logit;
  };
  const auto count = static_cast<int32_t>(logits.size());
  float largest = kNothing;
  for (int32_t id = 0; id < count; ++id)
    largest = std::max(largest, at(id));
  double sum = 0;
  for (int32_t id = 0; id < count; ++id)
    sum += std::exp(static_cast<double>(at(id) - largest));
  const double norm = static_cast<double>(largest) + std::log(sum);
  const auto logprob = [&](int32_t id) { return static_cast<float>(at(id) - norm); };
  ScoredToken scored{token, logprob(token), {}};
  if (best <= 0) return scored;
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + std::min(best, count);
  std::partial_sort(ids.begin(), end, ids.end(), [&](int32_t a, int32_t b) {
    return at(a) > at(b) || (at(a) == at(b) && a < b);
  });
  for (auto id = ids.begin(); id != end; ++id)
    scored.best.push_back({*id, logprob(*id)});
  return scored;
}

}  // namespace walsh
