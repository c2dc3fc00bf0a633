// Declares the measurements of calibration: second moments of the activations that linear layers
// read. The quantizer asks for them; the code that runs the model to measure them is in a higher
// layer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/aligned.h"
#include "base/thread_pool.h"

namespace walsh {

// Adds up `tokens` activations x[width] as a linear layer reads them.
struct InputMoments {
  int64_t width = 0, tokens = 0;
  AlignedArray<float> sums;  // [width][width], the upper triangle of the sum of x x^T

  explicit InputMoments(int64_t columns);
  // Adds x[rows][stride], of which the first `width` columns are used. The bits of the sums depend
  // only on the order of the tokens.
  void add(const float* x, int64_t stride, int64_t rows, ThreadPool& pool);
  // Returns the root mean square of every column.
  std::vector<double> rms() const;
};

class InputStatistics {
 public:
  virtual ~InputStatistics() = default;
  // Returns the moments of a site, which is its index in ModelPlan::sites, or their number for the
  // head. They are valid until a site of another layer is requested. Requesting sites in the order
  // of the plan is cheapest.
  virtual const InputMoments& moments(int site) = 0;
  // Returns the moments over the tokens that reached one of the experts that read a site. If there
  // were none, it has no tokens and possibly no width. They are valid as long as moments().
  virtual const InputMoments& expert_moments(int site, int expert) = 0;
  // Returns what users should know about how moments are measured; usually empty.
  virtual std::string note() const { return {}; }
};

}  // namespace walsh
