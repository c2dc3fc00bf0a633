#include "base/physical_cores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "io/io_testing.h"

namespace walsh {
namespace {

// Makes a tree with a /sys of its own.
class PhysicalCores : public ::testing::Test {
 protected:
  void write(int cpu, const std::string& siblings) const {
    const std::filesystem::path folder =
        root_ + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology";
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "thread_siblings_list") << siblings;
  }
  int count(std::initializer_list<int> cpus) const { return physical_cores(cpus, root_); }

  const testing::TemporaryFolder folder_;
  const std::string root_ = folder_.path();
};

TEST_F(PhysicalCores, HyperthreadsOfACoreCountOnce) {
  for (const int cpu : {0, 1, 2, 3})
    write(cpu, std::to_string(cpu % 2) + "," + std::to_string(cpu % 2 + 2) + "\n");
  EXPECT_EQ(count({0, 1, 2, 3}), 2);
  EXPECT_EQ(count({0, 2}), 1);
  EXPECT_EQ(count({2, 3}), 2);
  for (const int cpu : {4, 5})
    write(cpu, "4-5\n");
  EXPECT_EQ(count({3, 4, 5}), 2);
}

TEST_F(PhysicalCores, WithoutSiblingsEachCpuIsACore) {
  EXPECT_EQ(count({0, 1, 7}), 3);
  write(1, "");
  write(7, "none\n");
  EXPECT_EQ(count({0, 1, 7}), 3);
  EXPECT_EQ(count({}), 0);
}

TEST(AllowedCpus, AreNumbersInRisingOrder) {
  const std::vector<int> cpus = allowed_cpus();
  ASSERT_FALSE(cpus.empty());
  EXPECT_TRUE(std::is_sorted(cpus.begin(), cpus.end()));
  EXPECT_GE(cpus.front(), 0);
  EXPECT_LE(physical_cores(cpus), static_cast<int>(cpus.size()));
}

}  // namespace
}  // namespace walsh
