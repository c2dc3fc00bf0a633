#include "base/physical_cores.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <set>
#include <thread>

namespace walsh {

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  if (cpus.empty()) {
    cpus.resize(std::max(1u, std::thread::hardware_concurrency()));
    std::iota(cpus.begin(), cpus.end(), 0);
  }
  return cpus;
}

int physical_cores(std::span<const int> cpus, const std::string& root) {
  std::set<int> cores;  // A core is named by its first CPU.
  for (const int cpu : cpus) {
    // The file has a text such as "0,8" or "0-1".
    std::ifstream siblings(root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                           "/topology/thread_siblings_list");
    int first = 0;
    cores.insert(siblings >> first && first >= 0 ? first : cpu);
  }
  return static_cast<int>(cores.size());
}

}  // namespace walsh
