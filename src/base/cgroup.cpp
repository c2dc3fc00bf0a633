#include "base/cgroup.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace walsh {
namespace {

// Returns how many cores a quota grants, rounded up; 0 for "max" and -1, which are no limits.
int cores_of(std::istream& quota_text, std::istream& period_text) {
  double quota = 0, period = 0;
  if (!(quota_text >> quota) || !(period_text >> period) || quota <= 0 || period <= 0) return 0;
  constexpr double kMost = 1 << 20;
  return static_cast<int>(std::min(kMost, (quota + period - 1) / period));
}

int cores_of_group(const std::string& folder, bool v2) {
  if (v2) {
    std::ifstream both(folder + "/cpu.max");
    return cores_of(both, both);
  }
  std::ifstream quota(folder + "/cpu.cfs_quota_us"), period(folder + "/cpu.cfs_period_us");
  return cores_of(quota, period);
}

bool names_cpu(const std::string& controllers) {
  std::istringstream list(controllers);
  for (std::string name; std::getline(list, name, ',');)
    if (name == "cpu") return true;
  return false;
}

}  // namespace

int cgroup_cores(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  int least = 0;
  // Lines are "ID:CONTROLLERS:PATH". In version 2 CONTROLLERS is empty.
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && !names_cpu(controllers)) continue;
    const std::string top =
        root + "/sys/fs/cgroup" + (controllers.empty() ? "" : "/" + controllers);
    for (std::string path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
      if (path == "/") path.clear();
      const int cores = cores_of_group(top + path, controllers.empty());
      if (cores > 0) least = least == 0 ? cores : std::min(least, cores);
      if (path.empty() || path.find('/') == path.npos) break;
    }
  }
  return least;
}

}  // namespace walsh
