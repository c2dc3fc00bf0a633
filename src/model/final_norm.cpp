#include "model/final_norm.h"

#include "kernels/ops.h"
#include "model/model.h"

namespace walsh {

// In a model on two devices the last part has the head.
FinalNorm::FinalNorm(const Model& model) : eps_(model.config.head_input.norm.eps) {
  const Model& last = model.all_parts().back();
  if (!last.head_vectors.empty()) gain_ = last.head_vectors.front();
}

void FinalNorm::apply(std::span<float> x) const {
  if (gain_.empty()) return;
  ops().rms_norm(x.data(), gain_.data(), std::ssize(x), eps_, x.data());
}

}  // namespace walsh
