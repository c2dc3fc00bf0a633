// Estimates how long encoding will take, from the time that finished tensors took.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "codec/format.h"
#include "codec/scalar/encoder.h"

namespace walsh {

// Steps of one kind cost the same per unit of work, which is measured as soon as one of them is
// done. Until then a kind is taken to be as much slower or faster than expected as those of its
// format, or as all that was measured.
class TimeEstimate {
 public:
  // Adds a step that is still to be done. `kind` is a step_kind, `work` the expected cost in any
  // unit.
  void add(const std::string& kind, double work);
  // Records that the step is done and took `seconds`.
  void finish(const std::string& kind, double work, double seconds);
  // Records that the step was not necessary.
  void skip(const std::string& kind, double work);

  // Returns the time for all remaining steps, or a negative number if nothing was measured yet.
  double seconds_left() const;

 private:
  struct Kind {
    double left = 0, done = 0, seconds = 0;
  };
  std::map<std::string, Kind> kinds_, formats_;
  Kind total_;
};

// Returns "FORMAT NAME", which is the same for tensors of equal cost. These have one format and
// differ only in their layer.
std::string step_kind(std::string_view tensor, const Format& format);

// Returns about how many nanoseconds a weight takes on one core, measured with AVX-512; ratios on
// others are not far from these. `converted` tells that a dense format is not the source's.
double encoding_cost(const Format& format, const EncodeOptions& options, bool converted);

}  // namespace walsh
