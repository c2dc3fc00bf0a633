// Rotary position embedding: reading its parameters and computing its frequencies.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/config_reader.h"

namespace walsh {

// Reads `rope_parameters` (transformers 5; one set for all layers) or `rope_theta` and
// `rope_scaling` (before). Throws bad_input naming the key for a kind that is not supported.
RopeConfig read_rope(ConfigReader& reader);

// Angle per position of each pair, [head_dim / 2].
std::vector<float> rope_frequencies(const RopeConfig& rope, int64_t head_dim);

}  // namespace walsh
