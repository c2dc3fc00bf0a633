// Applies the final norm of a model for callers that read the output of its layers (Session's
// streams).
#pragma once

#include <span>
#include <vector>

namespace walsh {

class Model;

// Computes x / rms(x) * gain. Nothing changes if the model has no such norm, or no head.
class FinalNorm {
 public:
  FinalNorm() = default;
  explicit FinalNorm(const Model& model);
  void apply(std::span<float> x) const;

 private:
  std::vector<float> gain_;
  float eps_ = 0;
};

}  // namespace walsh
