// The GPU that is taken where none is named.
#pragma once

#include <optional>

namespace walsh::cuda {

// The first of devices(), without touching those behind it: looking at a device makes a context on
// it for the life of the process. Never throws.
std::optional<int> first_device();

}  // namespace walsh::cuda
