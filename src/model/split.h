// Models in two parts on two devices: which part has what, and how much a GPU gets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "arch/config.h"
#include "base/device.h"
#include "base/function_ref.h"

namespace walsh {

// What the CPU has of a model whose other part a GPU has. Whatever that is, it has the embedding,
// and the GPU the head.
struct LayerSplit {
  int64_t cpu_layers = 0;   // the first ones
  int64_t cpu_experts = 0;  // experts of so many layers, counted from the first one

  bool whole() const { return cpu_layers == 0 && cpu_experts == 0; }
  bool operator==(const LayerSplit&) const = default;
};

// The config of each part: that of the model with as many layers, which keep their numbers. Layers
// have what the part has of them, many nothing; an embedding or a head that it has not has no name.
// Of a layer whose experts alone are in the first part, the second one has the mixer and the shared
// expert, and experts of which some are `chosen` but none there.
struct ModelParts {
  ModelConfig first, second;
};
ModelParts split_config(const ModelConfig& config, const LayerSplit& split);

bool has_mixer(const LayerDesc& layer);  // attention or a delta net
bool has_experts(const ModelConfig& config);

// The split with the most on the GPU that `fits`: the whole model (no split), then as few layers
// without their experts as it takes, then as few layers less. cpu_experts is that of LoadOptions.
// Nothing if not even one layer fits.
std::optional<LayerSplit> choose_split(const ModelConfig& config, int64_t cpu_experts,
                                       FunctionRef<bool(const LayerSplit& split)> fits);
// The one that LoadOptions with these numbers ask for, the first of which is not kPlanned.
LayerSplit wanted_split(const ModelConfig& config, int64_t gpu_layers, int64_t cpu_experts);

// "cuda:0 has the last 20 of 32 layers, the CPU the rest".
std::string split_text(const ModelConfig& config, const LayerSplit& split, const Device& gpu);

}  // namespace walsh
