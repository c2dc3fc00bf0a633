#include "quantize/feedback/calibration.h"

namespace walsh {
namespace {

// An expert with fewer tokens than this is rounded without feedback: the damping that so few tokens
// need (calibration_damping) would leave almost nothing of it.
constexpr double kFewestTokensPerChannel = 0.5;

}  // namespace

Calibration::Calibration(std::shared_ptr<InputStatistics> statistics, ThreadPool& pool)
    : statistics_(std::move(statistics)), pool_(pool) {}

std::vector<float> Calibration::rms(int site) {
  std::vector<float> result;
  for (const double v : statistics_->moments(site).rms())
    result.push_back(static_cast<float>(v));
  return result;
}

Checksum Calibration::checksum(int site, int expert) {
  const auto known = checksums_.find({site, expert});
  if (known != checksums_.end()) return known->second;
  const InputMoments& moments = this->moments(site, expert);
  ChecksumStream sum;
  sum.update(std::as_bytes(std::span(&moments.tokens, 1)));
  for (int64_t c = 0; c < moments.width; ++c) {  // the upper triangle is stored row by row
    const float* row = moments.sums.data() + c * moments.width;
    sum.update(std::as_bytes(std::span(row + c, static_cast<size_t>(moments.width - c))));
  }
  return checksums_[{site, expert}] = sum.digest();
}

bool Calibration::suffices(int site, int expert) {
  const InputMoments& known = moments(site, expert);
  const double fewest = kFewestTokensPerChannel * static_cast<double>(known.width);
  return expert < 0 || (known.tokens > 0 && static_cast<double>(known.tokens) >= fewest);
}

std::shared_ptr<const ErrorFeedback> Calibration::feedback(int site, int expert,
                                                           std::span<const float> scales,
                                                           const Rotation& rotation,
                                                           int64_t padded) {
  const bool known = feedback_ && site == site_ && expert == expert_;
  if (!known || rotation != rotation_ || padded != feedback_->size()) {
    feedback_.reset();  // it is freed first, unless a tensor is still encoded with it
    feedback_ = std::make_shared<const ErrorFeedback>(moments(site, expert), scales, rotation,
                                                      padded, pool_);
    site_ = site;
    expert_ = expert;
    rotation_ = rotation;
  }
  return feedback_;
}

}  // namespace walsh
