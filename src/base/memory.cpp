#include "base/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

namespace walsh {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

// Reads a file of lines "KEY NUMBER". Returns 0 if `key` is not in it.
uint64_t number_of(const std::string& file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t number = 0;
    if (words >> name >> number && name == key) return number;
  }
  return 0;
}

// Returns how much memory a control group leaves. The page cache that is charged to it can be
// reclaimed, so it counts as free.
uint64_t left_in_group(const std::string& folder) {
  std::ifstream most_text(folder + "/memory.max"), used_text(folder + "/memory.current");
  uint64_t most = 0, used = 0;
  if (!(most_text >> most) || !(used_text >> used)) return kUnlimited;  // "max" is no number.
  const std::string stat = folder + "/memory.stat";
  const uint64_t cached = number_of(stat, "inactive_file") + number_of(stat, "active_file");
  used -= std::min(used, cached);
  return most - std::min(most, used);
}

}  // namespace

uint64_t available_memory(const std::string& root) {
  constexpr uint64_t kKib = 1024;
  const uint64_t system = number_of(root + "/proc/meminfo", "MemAvailable:") * kKib;
  if (system == 0) return 0;
  uint64_t left = system;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::/")) continue;
    for (std::string path = line.substr(3);; path.resize(path.rfind('/'))) {
      if (path == "/") path.clear();
      left = std::min(left, left_in_group(root + "/sys/fs/cgroup" + path));
      if (path.empty()) break;
    }
  }
  return left;
}

}  // namespace walsh
