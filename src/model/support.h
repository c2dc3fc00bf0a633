// Says what a device can compute with before anything is loaded or allocated. Every combination of
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
// GPUs take at most this many experts in a layer, and this many values in a head of a delta net.
inline constexpr int64_t kMostGpuExperts = 800, kMostGpuDeltaDim = 256;
// On GPUs a head of attention has at most this many values, a multiple of the unit; a shared key
// has at most kMostGpuSharedKey.
inline constexpr int64_t kMostGpuHeadDim = 512, kGpuHeadUnit = 8, kMostGpuSharedKey = 64;

// Says why the device of the options cannot execute a step; the reason is empty if it can. The
// place names the tensor whose way of storage is the reason, or the cache types.
struct Refusal {
  std::string reason, place;
};
// Checks a step of the list: what it computes, how its keys and values are stored, and how its
// matrices are stored as far as that is known.
Refusal why_not(const ModelConfig& config, const ModelSteps& steps, const Step& step,
                const LoadOptions& options);

// Returns what the device cannot compute of all steps, however matrices are stored; empty if
// nothing.
std::string why_not(const ModelConfig& config, const Device& device);
// Returns why options.device cannot multiply with a matrix stored in this form; empty if it can.
std::string why_not(const StoredForm& form, const LoadOptions& options);
// Returns why the device cannot look up rows of an embedding stored in this form; empty if it can.
std::string why_not_embedding(const StoredForm& form, const Device& device);
// Returns why coded weights of any format cannot be multiplied as the options say.
std::string why_not(const LoadOptions& options);

// Throws usage if one of these refuses a step or the embedding, naming the tensor and the reason,
// or the option. Missing tensors are left to the loader.
void refuse_unsupported(const WeightSource& source, const ModelConfig& config,
                        const ModelSteps& steps, const LoadOptions& options);

}  // namespace walsh
