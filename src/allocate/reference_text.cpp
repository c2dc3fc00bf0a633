#include "allocate/reference_text.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "eval/token_score.h"
#include "walsh/error.h"

namespace walsh {
namespace {

double checked_log_sum_exp(std::span<const float> logits) {
  const double normalizer = log_sum_exp(logits);
  if (!std::isfinite(normalizer)) {
    throw Error(ErrorCode::bad_input, "allocation",
                "the model computes logits that are not finite numbers");
  }
  return normalizer;
}

}  // namespace

template <typename Body>
void ReferenceText::for_positions(LayerStream& stream, const Body& body) const {
  stream.run_head([&](int64_t token, std::span<const float> logits) {
    const int64_t window = token / window_, i = token % window_;
    if (i + 1 < window_) body(window * (window_ - 1) + i, logits);
  });
}

ReferenceText::ReferenceText(LayerStream& stream, uint64_t max_bytes)
    : window_(static_cast<int64_t>(stream.windows().front().size())), vocab_(stream.vocab()) {
  const int64_t positions = static_cast<int64_t>(stream.windows().size()) * (window_ - 1);
  const int64_t per_position = static_cast<int64_t>(max_bytes) / std::max<int64_t>(positions, 1);
  const bool all = per_position >= vocab_ * int64_t{sizeof(float)};
  kept_ = all ? vocab_
              : std::clamp(per_position / int64_t{sizeof(float) + sizeof(int32_t)}, int64_t{1},
                           vocab_ - 1);
  logits_ = AlignedArray<float>(static_cast<size_t>(positions * kept_));
  if (!all) ids_ = AlignedArray<int32_t>(logits_.size());
  normalizers_.resize(static_cast<size_t>(positions));
  rest_.resize(static_cast<size_t>(positions));
  for_positions(stream, [&](int64_t i, std::span<const float> logits) { keep(i, logits); });
}

void ReferenceText::keep(int64_t position, std::span<const float> logits) {
  const double normalizer = checked_log_sum_exp(logits);
  normalizers_[static_cast<size_t>(position)] = normalizer;
  float* kept = logits_.data() + position * kept_;
  if (kept_ == vocab_) {
    std::copy(logits.begin(), logits.end(), kept);
    return;
  }
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto better = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  std::nth_element(order.begin(), order.begin() + kept_, order.end(), better);
  std::sort(order.begin(), order.begin() + kept_);
  double rest = 1;
  for (int64_t k = 0; k < kept_; ++k) {
    const int32_t id = order[static_cast<size_t>(k)];
    ids_.data()[position * kept_ + k] = id;
    kept[k] = logits[static_cast<size_t>(id)];
    rest -= std::exp(static_cast<double>(kept[k]) - normalizer);
  }
  rest_[static_cast<size_t>(position)] = std::max(rest, 0.0);
}

double ReferenceText::compare(int64_t position, std::span<const float> logits) const {
  const double norm_q = checked_log_sum_exp(logits);
  const double norm_p = normalizers_[static_cast<size_t>(position)];
  const float* kept = logits_.data() + position * kept_;
  const int32_t* ids = kept_ == vocab_ ? nullptr : ids_.data() + position * kept_;
  double sum = 0, rest_q = 1;
  for (int64_t k = 0; k < kept_; ++k) {
    const double log_p = static_cast<double>(kept[k]) - norm_p;
    const double log_q =
        static_cast<double>(logits[static_cast<size_t>(ids != nullptr ? ids[k] : k)]) - norm_q;
    sum += static_cast<double>(std::exp(static_cast<float>(log_p))) * (log_p - log_q);
    if (ids != nullptr) rest_q -= std::exp(log_q);
  }
  const double rest_p = rest_[static_cast<size_t>(position)];
  constexpr double kLeast = 1e-12;
  return rest_p > kLeast ? sum + rest_p * std::log(rest_p / std::max(rest_q, kLeast)) : sum;
}

Estimate ReferenceText::divergence(LayerStream& stream) const {
  std::vector<double> values(rest_.size());
  for_positions(stream, [&](int64_t i, std::span<const float> logits) {
    values[static_cast<size_t>(i)] = compare(i, logits);
  });
  MeanMeter meter;
  for (const double value : values)
    meter.add(value);
  return meter.mean();
}

}  // namespace walsh
