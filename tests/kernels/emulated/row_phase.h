// Runs the phase of attention of several rows by itself on the host (emulated/device.h).
#pragma once

#include "kernels/emulated/device.h"
//
#include "kernels/cuda/persistent/phase.h"

namespace walsh::cuda {

// A step gives a phase this besides its arguments. Queries, keys and values have this tag bit, and
// the results get it.
struct RowPhaseCall {
  AttentionPhase phase;  // heads of 64 values
  RowPlaces places;
  PageTable table;
  int room = 2, rows = 2;
  uint32_t bit = 0;
  int blocks = 1;
};

void run_rows(const RowPhaseCall& call);

}  // namespace walsh::cuda
