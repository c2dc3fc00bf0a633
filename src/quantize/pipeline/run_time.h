// Estimates the time that is left of a run that encodes a checkpoint.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "quantize/pipeline/compressor.h"
#include "quantize/pipeline/time_estimate.h"

namespace walsh {

// Steps are the tensors of a compressor in their order and, with calibration, the layers that are
// measured when their first tensor comes. The clock starts with the object.
class RunTime {
 public:
  explicit RunTime(const Compressor& source);

  // Records that Compressor::measure has come back.
  void measured(const TensorPlan& plan);
  // Records that the tensor is written; `resumed` tells that it was not encoded.
  void written(const TensorPlan& plan, bool resumed);
  // Returns the estimate, or a negative number if nothing is known so far.
  double seconds_left() const { return estimate_.seconds_left(); }

 private:
  double work(const TensorPlan& plan) const;
  double lap();

  EncodeOptions encode_;
  // The first tensor of a layer has the work of measuring it.
  std::map<std::string, double> measuring_;
  TimeEstimate estimate_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace walsh
