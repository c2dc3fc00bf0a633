// Says how much CPU time this process's control groups grant; containers limit it in this way.
#pragma once

#include <string>

namespace walsh {

// Returns how many cores' worth of CPU time, rounded up, the process's control group and its
// ancestors allow: cpu.max (cgroup v2) or cpu.cfs_quota_us (v1). Returns 0 if no limit can be read.
// `root` is put in front of /proc and /sys (for tests).
int cgroup_cores(const std::string& root = "");

}  // namespace walsh
