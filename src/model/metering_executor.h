// Executes a part of a model and sums up second moments of the inputs of products on the device
// that computes them.
#pragma once

#include <set>

#include "codec/feedback/input_statistics.h"
#include "model/part_executor.h"

namespace walsh {

class MeteringExecutor : public PartExecutor {
 public:
  // Measures all inputs of the part from now on. Those in `without_gain` are measured without the
  // gain of the norm in front. Throws limit if there is no memory for the sums.
  virtual void meter(const std::set<const Input*>& without_gain) = 0;
  // Measures what the head reads, for the first `rows` rows of the stream.
  virtual void meter_head(int64_t rows) = 0;
  // Returns how many experts are measured separately at an input.
  virtual int64_t metered_experts(const Input& input) const = 0;
  // Returns the moments of an input, both triangles, over all rows or over those that one expert
  // read. Waits for the device. The sums are empty if there were no rows.
  virtual InputMoments metered(const Input& input, int expert) = 0;
};

}  // namespace walsh
