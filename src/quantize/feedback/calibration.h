// What a compressor knows from a calibration text, site by site.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "io/checksum.h"
#include "quantize/feedback/error_feedback.h"
#include "quantize/feedback/input_statistics.h"

namespace walsh {

class Calibration {
 public:
  // `pool` outlives this object.
  Calibration(std::shared_ptr<InputStatistics> statistics, ThreadPool& pool);

  // Measures the layer of a site, if its moments are not known.
  void measure(int site) { statistics_->moments(site); }
  // Root mean square of every channel of a site.
  std::vector<float> rms(int site);
  // `expert`: of the tokens that it got; -1: of all.
  // A checksum of all that was measured at a site.
  Checksum checksum(int site, int expert);
  // Whether tokens enough for feedback were measured.
  bool suffices(int site, int expert);
  // The feedback at a site in the basis that scales, rotation and padding make. Kept until another
  // one is asked for, so that q, k and v share it. Throws bad_input with an empty `where`.
  std::shared_ptr<const ErrorFeedback> feedback(int site, int expert, std::span<const float> scales,
                                                const Rotation& rotation, int64_t padded);

 private:
  const InputMoments& moments(int site, int expert) {
    return expert < 0 ? statistics_->moments(site) : statistics_->expert_moments(site, expert);
  }

  std::shared_ptr<InputStatistics> statistics_;
  ThreadPool& pool_;
  std::map<std::pair<int, int>, Checksum> checksums_;
  std::shared_ptr<const ErrorFeedback> feedback_;
  int site_ = -1, expert_ = -1;  // of feedback_
  Rotation rotation_;
};

}  // namespace walsh
