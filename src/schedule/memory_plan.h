// Plans the host memory of a model that is served, before it is loaded.
#pragma once

#include <cstdint>

#include "arch/config.h"
#include "cache/cache_type.h"
#include "codec/weight_source.h"
#include "schedule/scheduler.h"

namespace walsh {

// Returns the bytes of the weights as they are stored, and of the keys, values and states of all
// texts that a scheduler with these options continues. Workspaces, some megabytes, are not counted.
// Throws usage for more positions than the model has.
uint64_t planned_bytes(const WeightSource& source, const ModelConfig& config,
                       const CacheTypes& cache, const SchedulerOptions& options);

}  // namespace walsh
