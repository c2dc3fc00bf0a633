#include "base/cgroup.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "io/io_testing.h"

namespace walsh {
namespace {

// Makes a tree with /proc and /sys of its own.
class Cgroup : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + name).parent_path());
    std::ofstream(root_ + name) << text;
  }

  const testing::TemporaryFolder folder_;
  const std::string root_ = folder_.path();
};

TEST_F(Cgroup, NothingToReadIsNoLimit) {
  EXPECT_EQ(cgroup_cores(root_), 0);
  write("/proc/self/cgroup", "nonsense\n0::/a\n");
  EXPECT_EQ(cgroup_cores(root_), 0);
  for (const char* text : {"max 100000\n", "", "many few\n", "-1 100000\n", "5000 0\n"}) {
    write("/sys/fs/cgroup/a/cpu.max", text);
    EXPECT_EQ(cgroup_cores(root_), 0) << text;
  }
}

TEST_F(Cgroup, TheSmallestLimitOnTheWayUpCounts) {
  write("/proc/self/cgroup", "0::/a/b/c\n");
  write("/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/a/b/cpu.max", "800000 100000\n");
  EXPECT_EQ(cgroup_cores(root_), 8);
  write("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(cgroup_cores(root_), 2);
  write("/sys/fs/cgroup/cpu.max", "20000 100000\n");
  EXPECT_EQ(cgroup_cores(root_), 1);
}

TEST_F(Cgroup, AContainerSeesItsGroupAsTheRoot) {
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(cgroup_cores(root_), 4);
}

TEST_F(Cgroup, VersionOneHasTwoFiles) {
  write("/proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/a\n2:cpuset:/\n");
  write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "300000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cores(root_), 3);
  write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cgroup_cores(root_), 0);
}

}  // namespace
}  // namespace walsh
