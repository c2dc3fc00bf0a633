// Decides how many prompt tokens a step may evaluate beside texts that are being generated.
//
// A fixed number is too small for a fast device and too large for a slow one, so it follows the
// measured times: a step should take its target time, but at least twice as long as a step without
// prompts, so that prompts make progress also beside many texts.
#pragma once

#include <cstdint>

namespace walsh {

class StepPace {
 public:
  // A step should take this many `seconds`; 0: there is no limit.
  explicit StepPace(double seconds) : seconds_(seconds) {}

  // Returns the most prompt tokens for the next step.
  int64_t rows() const;
  // Reports the time of a step and its number of prompt tokens.
  void took(double seconds, int64_t prompt_rows);

 private:
  double target() const;

  const double seconds_;
  double alone_ = 0;    // a step without prompts takes this long, in seconds
  double per_row_ = 0;  // a prompt token adds this much; 0 means that it is unknown
};

}  // namespace walsh
