// Tells how much host memory is available.
#pragma once

#include <cstdint>
#include <string>

namespace walsh {

// Returns how many bytes of host memory this process can still take without swapping: the system's
// available memory, limited by what the process's control groups (version 2) leave. Returns 0 if
// that is unknown. `root` is put in front of /proc and /sys (for tests).
uint64_t available_memory(const std::string& root = "");

}  // namespace walsh
