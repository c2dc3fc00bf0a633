// Expresses GateFunction::clamped_silu as a change of both operands of silu(gate) * up.
#pragma once

#include "kernels/cuda/experts/lanes.h"

namespace walsh::cuda {

// Describes gate = slope min(gate, limit), up = (1 + min(max(up, -limit), limit)) / slope. NaN
// stays NaN, as on the CPU.
struct GateClamp {
  bool used = false;
  float slope = 1, limit = 0;

  WALSH_EXPERT_LANE void apply(float& gate, float& up) const {
    gate = slope * (limit < gate ? limit : gate);
    up = (1.0f + (up < -limit ? -limit : limit < up ? limit : up)) / slope;
  }
};

}  // namespace walsh::cuda
