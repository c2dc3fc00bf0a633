// Splits a model into two parts on two devices: says what each part holds, and how much a GPU gets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "arch/config.h"
#include "base/device.h"
#include "base/function_ref.h"

namespace walsh {

// Says which part of a model the CPU holds; a GPU holds the rest. In any split the CPU has the
// embedding and the GPU the head.
struct LayerSplit {
  int64_t cpu_layers = 0;   // The CPU has this many layers, counted from the first.
  int64_t cpu_experts = 0;  // It has the experts of this many layers, counted from the first.

  bool whole() const { return cpu_layers == 0 && cpu_experts == 0; }
  bool operator==(const LayerSplit&) const = default;
};

// Holds the configs of both parts. Each has as many layers as the model, with the same numbers, but
// a layer contains only what the part holds of it, often nothing. A part without embedding or head
// has an empty name for it. If the CPU has only the experts of a layer, the GPU's layer has the
// mixer and the shared expert; its ExpertsDesc has `chosen` above 0 but no experts.
struct ModelParts {
  ModelConfig first, second;
};
// Throws usage if a split is not possible (why_not).
ModelParts split_config(const ModelConfig& config, const LayerSplit& split);

// Returns what the parts would have to exchange besides the residual stream; empty if nothing. A
// split with such an exchange is not possible.
std::string why_not(const ModelConfig& config, const LayerSplit& split);

bool has_mixer(const LayerDesc& layer);  // Returns whether it has a mixer.
bool has_experts(const ModelConfig& config);

// Returns the split with the most on the GPU that `fits` accepts. It tries the whole model (no
// split), then without the experts of as few layers as possible, then without as few layers as
// possible. `cpu_experts` is that of LoadOptions. Returns nothing if not even one layer fits.
std::optional<LayerSplit> choose_split(const ModelConfig& config, int64_t cpu_experts,
                                       FunctionRef<bool(const LayerSplit& split)> fits);
// Returns the split that LoadOptions ask for with these numbers. `gpu_layers` must not be kPlanned.
LayerSplit wanted_split(const ModelConfig& config, int64_t gpu_layers, int64_t cpu_experts);

// Returns a text about a split such as "cuda:0 has the last 20 of 32 layers, the CPU the rest".
std::string split_text(const ModelConfig& config, const LayerSplit& split, const Device& gpu);

}  // namespace walsh
