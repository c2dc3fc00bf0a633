// Tells which logical CPUs a process may run on, and how many cores these belong to.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace walsh {

// Returns the numbers of the logical CPUs in this process's affinity mask, at least one.
std::vector<int> allowed_cpus();

// Returns how many cores the logical CPUs with these numbers belong to. If the system does not tell
// the siblings of a CPU, the CPU counts as a core of its own. `root` is put in front of /sys (for
// tests).
int physical_cores(std::span<const int> cpus, const std::string& root = "");

}  // namespace walsh
