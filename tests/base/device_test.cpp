#include "base/device.h"

#include <gtest/gtest.h>

#include "base/cuda/device.h"
#include "walsh/error.h"

namespace walsh {
namespace {

TEST(DeviceName, CpuIsAlwaysThere) {
  EXPECT_EQ(parse_device("cpu"), Device{});
  EXPECT_EQ(parse_device("cpu").name(), "cpu");
}

TEST(DeviceName, AutoTakesTheFirstGpuIfThereIsOne) {
  const auto all = cuda::devices();
  const Device chosen = parse_device("auto");
  EXPECT_EQ(chosen.cuda, !all.empty());
  EXPECT_EQ(chosen.index, all.empty() ? 0 : all.front().index);
}

TEST(DeviceName, RefusesUnknownNames) {
  for (const char* name : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cudax", "CPU"})
    EXPECT_THROW(parse_device(name), Error) << name;
}

TEST(DeviceName, AGpuThatIsNotThereIsRefusedWithAReason) {
  try {
    parse_device("cuda:1000");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_FALSE(e.reason().empty());
  }
}

TEST(DeviceName, NoDevicesComesWithAReason) {
  if (!cuda::devices().empty()) GTEST_SKIP() << "there is a GPU";
  EXPECT_FALSE(cuda::unavailable_reason().empty());
}

}  // namespace
}  // namespace walsh
