// What calibration measures: the second moments of the activations that linear layers read. The
// quantizer asks for them; who runs the model to find them stands above this layer.
#pragma once

#include <cstdint>
#include <vector>

#include "base/aligned.h"
#include "base/thread_pool.h"

namespace walsh {

// Sums over `tokens` activations x[width] as a linear layer reads them.
struct InputMoments {
  int64_t width = 0, tokens = 0;
  AlignedArray<float> sums;  // [width][width], the upper triangle of the sum of x x^T

  explicit InputMoments(int64_t columns);
  // Adds x[rows][stride], of which the first `width` columns count. The bits of the sums depend on
  // the order of the tokens only.
  void add(const float* x, int64_t stride, int64_t rows, ThreadPool& pool);
  // Root mean square of every column.
  std::vector<double> rms() const;
};

class InputStatistics {
 public:
  virtual ~InputStatistics() = default;
  // The moments of a site: its number in ModelPlan::sites, or their count for the head. Valid until
  // a site of another layer is asked for. Sites come cheapest in the order of the plan.
  virtual const InputMoments& moments(int site) = 0;
  // Those of the tokens that reached one of the experts that read a site; without tokens, and maybe
  // without a width, if none did. Valid as long as moments().
  virtual const InputMoments& expert_moments(int site, int expert) = 0;
};

}  // namespace walsh
