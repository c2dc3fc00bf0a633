// Executes a part of a model and also sums up the second moments of the inputs of products, on the
// device where they are computed.
#pragma once

#include <set>

#include "codec/feedback/input_statistics.h"
#include "model/part_executor.h"

namespace walsh {

class MeteringExecutor : public PartExecutor {
 public:
  // Measures all inputs of the part from now on, some of them without the gain of the norm in
  // front. Throws limit if there is no memory for it.
  virtual void meter(const std::set<const Input*>& without_gain) = 0;
  // Measures what the head reads for the first `rows` rows of the stream.
  virtual void meter_head(int64_t rows) = 0;
  // Returns the number of experts that are measured at an input, each by itself.
  virtual int64_t metered_experts(const Input& input) const = 0;
  // Returns the moments of one of the inputs of the model's steps, both triangles: of all rows, or
  // of those that an expert read. Waits for them. Without rows there are no sums.
  virtual InputMoments metered(const Input& input, int expert) = 0;
};

}  // namespace walsh
