// Finds the GPU that is used if the user names none.
#pragma once

#include <optional>

namespace walsh::cuda {

// Returns the first of devices() without touching the others, because querying a device creates a
// context on it that lasts as long as the process. Never throws.
std::optional<int> first_device();

}  // namespace walsh::cuda
