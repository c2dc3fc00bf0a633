// The GPU's search of trellis tiles gives the CPU's bytes. The kernels run on the host as well
// (tile_search_emulated_test.cpp), so that most of it is tested without a GPU.
#include <gtest/gtest.h>

#include "codec/trellis/cuda/gpu_tiles.h"
#include "quantize/tiles_on_device.h"

namespace walsh {
namespace {

using testing_support::expect_same_fed_back;
using testing_support::expect_same_tiles;
using testing_support::normal_matrix;
using testing_support::odd_tiles;

class GpuTilesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::devices().empty()) GTEST_SKIP() << "no CUDA device: " << cuda::unavailable_reason();
    device_ = std::make_unique<cuda::GpuTiles>(cuda::use_device(cuda::devices().front().index));
  }

  std::unique_ptr<cuda::GpuTiles> device_;
};

TEST_F(GpuTilesTest, HaveTheBytesOfTheCpuAtEveryRate) {
  for (const char* name : {"tc2:h", "tc2.5:h", "tc3:h", "tc3.5:h", "tc4:h", "tc2:hq", "tc3:hq",
                           "tc4:hq", "tc3:h:blocks", "tc3:h:L14", "tc3:h:L10"}) {
    if (!device_->searches(testing_support::test_format(name))) continue;
    expect_same_tiles(*device_, name, normal_matrix(20, 352));
    expect_same_tiles(*device_, name, normal_matrix(16, 64, 3), Effort::fast);
  }
}

TEST_F(GpuTilesTest, HaveTheBytesOfTheCpuForOddValues) {
  for (const char* name : {"tc3:h", "tc2:h:blocks"})
    expect_same_tiles(*device_, name, odd_tiles(24, 160));
}

// A block has groups of two, four and eight tiles, and there are several batches.
TEST_F(GpuTilesTest, HaveTheBytesOfTheCpuForManyTiles) {
  expect_same_tiles(*device_, "tc3:h", normal_matrix(64, 1024));
  expect_same_tiles(*device_, "tc3:h", normal_matrix(128, 1536));
  expect_same_tiles(*device_, "tc4:h", normal_matrix(256, 1088));
  expect_same_tiles(*device_, "tc2:h:L8", normal_matrix(2048, 4096));
}

TEST_F(GpuTilesTest, HaveTheBytesOfTheCpuWithErrorFeedback) {
  for (const char* name : {"tc3:h", "tc2:h", "tc4:h:blocks", "tc3:hq:L12"}) {
    if (!device_->searches(testing_support::test_format(name))) continue;
    expect_same_fed_back(*device_, name, normal_matrix(37, 160, 5));
  }
  expect_same_fed_back(*device_, "tc3:h:L10", normal_matrix(200, 1100, 6), Effort::fast);
  expect_same_fed_back(*device_, "tc3:h:L12", odd_tiles(24, 160));
}

}  // namespace
}  // namespace walsh
