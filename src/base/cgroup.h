// How much CPU time the control groups of this process grant, as containers limit it.
#pragma once

#include <string>

namespace walsh {

// Cores' worth of time, rounded up, by cpu.max (cgroup v2) or cpu.cfs_quota_us (v1) of the group
// and those above it; 0: no limit that can be read. `root` stands before /proc and /sys.
int cgroup_cores(const std::string& root = "");

}  // namespace walsh
