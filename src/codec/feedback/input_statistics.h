// Declares what calibration measures: second moments of the activations that linear layers read.
// The quantizer asks for them; a higher layer has the code that runs the model to measure them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/aligned.h"
#include "base/thread_pool.h"

namespace walsh {

// Holds sums over `tokens` activations x[width] as a linear layer reads them.
struct InputMoments {
  int64_t width = 0, tokens = 0;
  // It has the shape [width][width]: the upper triangle of the sum of x x^T.
  AlignedArray<float> sums;

  explicit InputMoments(int64_t columns);
  // Adds x[rows][stride], of which the first `width` columns count. The bits of the sums depend
  // only on the order of the tokens.
  void add(const float* x, int64_t stride, int64_t rows, ThreadPool& pool);
  // Returns the root mean square of every column.
  std::vector<double> rms() const;
};

class InputStatistics {
 public:
  virtual ~InputStatistics() = default;
  // Returns the moments of a site. `site` is its index in ModelPlan::sites, or their number for the
  // head. The result is valid until a site of another layer is requested. Requesting sites in the
  // order of the plan is cheapest.
  virtual const InputMoments& moments(int site) = 0;
  // Returns the moments over the tokens that reached one of the experts that read a site. If no
  // token reached it, the result has no tokens and possibly no width. It is valid as long as that
  // of moments().
  virtual const InputMoments& expert_moments(int site, int expert) = 0;
  // Returns what users should know about the measurement; usually empty.
  virtual std::string note() const { return {}; }
};

}  // namespace walsh
