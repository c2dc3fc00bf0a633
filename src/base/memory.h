// How much memory there is to be had.
#pragma once

#include <cstdint>
#include <string>

namespace walsh {

// Bytes of host memory that this process can still take without swapping: what the system has
// available, and what the control groups of the process (their version 2) leave. 0 if nothing is
// known. `root` stands in front of /proc and /sys.
uint64_t available_memory(const std::string& root = "");

}  // namespace walsh
