// Identifies what keys, values and states of a model depend on, for files that outlive a process.
#pragma once

#include <string>

#include "model/model.h"

namespace walsh {

// Returns a text that differs where sessions of `positions` positions would compute something else:
// by the weights in memory, the cache, the activations, the instruction set or the version. The
// config of the model is not in it. For models on the CPU.
std::string fingerprint(const Model& model, int64_t positions);

}  // namespace walsh
