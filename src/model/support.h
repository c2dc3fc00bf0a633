// Says what a device can compute with, before anything is loaded or allocated: every combination of
// device, format, rotation and options runs, or is refused by name.
#pragma once

#include <string>

#include "arch/config.h"
#include "codec/weight_source.h"
#include "model/model.h"
#include "model/steps.h"

namespace walsh {

// Matrices that are rotated back while they are multiplied (--rotate weights) have rotation blocks
// of at most this many columns.
inline constexpr int kMostWeightSideBlock = 256;
// GPUs have room for this many experts of a layer, and for this many values of a head of a delta
// net.
inline constexpr int64_t kMostGpuExperts = 800, kMostGpuDeltaDim = 256;
// Heads of attention on GPUs have so many values at most, a multiple of the unit.
inline constexpr int64_t kMostGpuHeadDim = 512, kGpuHeadUnit = 8, kMostGpuSharedKey = 64;

// Says why the device of the options cannot execute a step; no reason if it can. With a tensor, the
// reason is how that is stored.
struct Refusal {
  std::string reason, tensor;
};
// Answers the one question about a step of the list: what it computes, and how its matrices are
// stored as far as that is known.
Refusal why_not(const ModelConfig& config, const ModelSteps& steps, const Step& step,
                const LoadOptions& options);

// Says what the device cannot compute of all steps, however matrices are stored; empty if it can.
std::string why_not(const ModelConfig& config, const Device& device);
// Returns why options.device cannot multiply with a matrix that is stored so; empty if it can.
std::string why_not(const StoredForm& form, const LoadOptions& options);
// Returns why the device cannot look up rows of an embedding that is stored so; empty if it can.
std::string why_not_embedding(const StoredForm& form, const Device& device);
// Returns why coded weights cannot be multiplied as the options say, whatever their format.
std::string why_not(const LoadOptions& options);

// Throws usage naming tensor and reason, or the option, where one of these says no to a step or the
// embedding. Tensors that are missing are left to the loader.
void refuse_unsupported(const WeightSource& source, const ModelConfig& config,
                        const ModelSteps& steps, const LoadOptions& options);

}  // namespace walsh
