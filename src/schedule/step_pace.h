// How much of prompts a step may read beside texts that are being continued.
//
// A fixed number of tokens is nothing to a fast device and a long wait on a slow one, so it follows
// what steps have taken: a step shall take as long as it is meant to, but at least twice as long as
// one without prompts, so that prompts come to an end where many texts are continued.
#pragma once

#include <cstdint>

namespace walsh {

class StepPace {
 public:
  // `seconds` that a step is meant to take; 0: there is no limit.
  explicit StepPace(double seconds) : seconds_(seconds) {}

  // Tokens of prompts for the next step, at most.
  int64_t rows() const;
  // A step has taken so long with so many tokens of prompts.
  void took(double seconds, int64_t prompt_rows);

 private:
  double target() const;

  const double seconds_;
  double alone_ = 0;    // of a step without prompts
  double per_row_ = 0;  // that a token of a prompt adds; 0: nothing is known of it
};

}  // namespace walsh
