// Gives a compressor the measurements of a calibration text for each site.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "codec/feedback/error_feedback.h"
#include "codec/feedback/input_statistics.h"
#include "io/checksum.h"

namespace walsh {

class Calibration {
 public:
  // `pool` must outlive this object.
  Calibration(std::shared_ptr<InputStatistics> statistics, ThreadPool& pool);

  // Returns a text that users should read about the measurements; it is usually empty.
  std::string note() const { return statistics_->note(); }
  // Measures the layer of a site, if its moments are not known yet.
  void measure(int site) { statistics_->moments(site); }
  // Returns the root mean square of every channel of a site.
  std::vector<float> rms(int site);
  // Returns a checksum of everything that was measured at a site for the tokens of one expert, or
  // for all tokens if `expert` is -1.
  Checksum checksum(int site, int expert);
  // Returns whether enough tokens were measured for feedback.
  bool suffices(int site, int expert);
  // Returns the feedback at a site in the basis that scales, rotation and padding give. It is kept
  // until another one is requested, so that q, k and v share it. Throws bad_input with an empty
  // `where`.
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
  int site_ = -1, expert_ = -1;  // feedback_ belongs to them
  Rotation rotation_;
};

}  // namespace walsh
