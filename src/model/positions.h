// Decides how many positions a session has, and computes what depends only on a position.
#pragma once

#include <cstdint>

#include "cache/cache_type.h"
#include "model/image_rows.h"
#include "model/steps.h"

namespace walsh {

// Returns how many positions the model has; if its rope depends on the length of the context, those
// of its training.
int64_t most_positions(const ModelConfig& config);

// Returns `wanted`. If that is 0, returns most_positions, but at most 4096. Throws usage if the
// model has fewer than wanted.
int64_t choose_positions(const ModelConfig& config, int64_t wanted);

// Returns how many bytes a cache of these types keeps per position in a layer, without what it
// holds besides (such as the recent positions of a coded cache).
double position_bytes(const AttentionDesc& attention, const CacheTypes& types);

// Returns where a rope with three axes has a position of a sequence with these images. All rows of
// a grid stand at the time of its first row, and the text behind it goes on where the longer side
// of the grid ends.
AxisPositions axis_positions(std::span<const ImageRows> images, int64_t position);

// Returns the factor that queries at a position are multiplied by.
float query_factor(const ModelConfig& config, const QueryFactors& factors, int64_t position);

}  // namespace walsh
