// A layer's experts as a part of a step in one launch.
#pragma once

#include "model/cuda/linear.h"

namespace walsh {

// What an executor knows of the layer and its rows.
struct ExpertStepRows {
  cuda::InputSource source;            // what router and experts read
  int64_t stride = 0;                  // of the arrays of its experts (model/cuda/experts.h)
  const float* choice_bias = nullptr;  // [experts] on the device, or null
  float* stream = nullptr;             // what the experts' sum is added to
};

// Adds all of a layer's experts: router, choice, products, the sum. False if a step cannot do that
// (cuda::PersistentProgram::experts, and: weights of inputs instead of results, norms and factors
// behind the sum, codes in two passes).
bool add_expert_step(const LayerDesc& desc, const Layer& layer, const ExpertStepRows& rows,
                     CudaLinear& linear, cuda::PersistentProgram& program);

}  // namespace walsh
