#include "quantize/feedback/calibration.h"

namespace walsh {

Calibration::Calibration(std::shared_ptr<InputStatistics> statistics, ThreadPool& pool)
    : statistics_(std::move(statistics)), pool_(pool) {}

std::vector<float> Calibration::rms(int site) {
  std::vector<float> result;
  for (const double v : statistics_->moments(site).rms())
    result.push_back(static_cast<float>(v));
  return result;
}

Checksum Calibration::checksum(int site) {
  const auto known = checksums_.find(site);
  if (known != checksums_.end()) return known->second;
  const InputMoments& moments = statistics_->moments(site);
  ChecksumStream sum;
  sum.update(std::as_bytes(std::span(&moments.tokens, 1)));
  for (int64_t c = 0; c < moments.width; ++c) {  // the upper triangle, row by row
    const float* row = moments.sums.data() + c * moments.width;
    sum.update(std::as_bytes(std::span(row + c, static_cast<size_t>(moments.width - c))));
  }
  return checksums_[site] = sum.digest();
}

const ErrorFeedback& Calibration::feedback(int site, std::span<const float> scales,
                                           const Rotation& rotation, int64_t padded) {
  if (!feedback_ || site != site_ || rotation != rotation_ || padded != feedback_->size()) {
    feedback_.reset();  // its memory first
    feedback_.emplace(statistics_->moments(site), scales, rotation, padded, pool_);
    site_ = site;
    rotation_ = rotation;
  }
  return *feedback_;
}

}  // namespace walsh
