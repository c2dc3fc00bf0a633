// How many positions a session has.
#pragma once

#include <cstdint>

#include "arch/config.h"

namespace walsh {

// `wanted`, or for 0 those of the model up to a limit, and up to the positions of its training
// where its rope depends on the length of the context. Throws usage if the model has fewer.
int64_t choose_positions(const ModelConfig& config, int64_t wanted);

}  // namespace walsh
