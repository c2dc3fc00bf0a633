#include "base/memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "io/io_testing.h"

namespace walsh {
namespace {

// Makes a tree with /proc and /sys of its own.
class Memory : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + name).parent_path());
    std::ofstream(root_ + name) << text;
  }

  const testing::TemporaryFolder folder_;
  const std::string root_ = folder_.path();
};

TEST_F(Memory, NothingToReadIsNothingKnown) {
  EXPECT_EQ(available_memory(root_), 0u);
  EXPECT_GT(available_memory(), 0u);
}

TEST_F(Memory, TheSmallestOfSystemAndGroupsCounts) {
  write("/proc/meminfo", "MemTotal:  8000 kB\nMemAvailable:    4000 kB\n");
  EXPECT_EQ(available_memory(root_), 4000u * 1024);
  write("/proc/self/cgroup", "1:cpu:/x\n0::/a/b\n");
  write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  write("/sys/fs/cgroup/a/b/memory.current", "1000\n");
  EXPECT_EQ(available_memory(root_), 4000u * 1024);
  write("/sys/fs/cgroup/a/memory.max", "5000\n");
  write("/sys/fs/cgroup/a/memory.current", "4500\n");
  EXPECT_EQ(available_memory(root_), 500u);
  write("/sys/fs/cgroup/a/memory.stat", "anon 1500\ninactive_file 2000\nactive_file 1000\n");
  EXPECT_EQ(available_memory(root_), 3500u) << "cached files can give way";
  write("/sys/fs/cgroup/a/memory.current", "9000\n");
  EXPECT_EQ(available_memory(root_), 0u);
}

}  // namespace
}  // namespace walsh
