// Decides how many positions a session has, and computes what depends on a position alone.
#pragma once

#include <cstdint>

#include "cache/cache_type.h"
#include "model/steps.h"

namespace walsh {

// Returns all positions of the model; those of its training where its rope depends on the length of
// the context.
int64_t most_positions(const ModelConfig& config);

// Returns `wanted`, or for 0 most_positions up to a limit of 4096. Throws usage if the model has
// fewer.
int64_t choose_positions(const ModelConfig& config, int64_t wanted);

// Returns the bytes that a cache of these types keeps of a position in a layer, without what it
// holds besides (recent positions of a coded cache).
double position_bytes(const AttentionDesc& attention, const CacheTypes& types);

// Returns the factor of queries at a position.
float query_factor(const ModelConfig& config, const QueryFactors& factors, int64_t position);

}  // namespace walsh
