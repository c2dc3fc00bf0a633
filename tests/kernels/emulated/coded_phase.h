// Runs the phase of attention to a coded cache by itself on the host (emulated/device.h).
#pragma once

#include "kernels/emulated/device.h"
//
#include "kernels/cuda/persistent/phase.h"

namespace walsh::cuda {

// A step gives a phase this besides its arguments.
struct CodedPhaseCall {
  AttentionPhase phase;  // queries, keys and values are plain arrays
  int position = 0, sequence = 0, kept = 0;
  PageTable table;
  int blocks = 1;
};

void run_phase(const CodedPhaseCall& call);

}  // namespace walsh::cuda
