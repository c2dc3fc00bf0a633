// The GPU's search of trellis tiles, run on the host (kernels/emulated/device.h), gives the CPU's
// bytes. Launches are divided as on a small device.
#include <gtest/gtest.h>

#include <limits>

#include "kernels/emulated/device.h"
//
#include "base/cuda/counted_memory.h"
#include "codec/trellis/cuda/gpu_tiles.h"
#include "quantize/tiles_on_device.h"

namespace walsh {
namespace {

using testing_support::encode_tiles;
using testing_support::expect_same_fed_back;
using testing_support::expect_same_tiles;
using testing_support::Matrix;
using testing_support::normal_matrix;
using testing_support::odd_tiles;
using testing_support::TileResult;

cuda::DeviceInfo small_device() {
  cuda::DeviceInfo info;
  info.shared_bytes = 227 << 10;
  info.multiprocessors = 1;
  return info;
}

// Every wait of a fiber costs time, so matrices are small.
class EmulatedTiles : public testing::Test {
 protected:
  cuda::GpuTiles device_{small_device(), 1};
};

TEST_F(EmulatedTiles, HaveTheBytesOfTheCpuAtEveryRate) {
  for (const char* name : {"tc2:h:L8", "tc2.5:h:L10", "tc3:h:L10", "tc3.5:h:L12", "tc4:h:L12",
                           "tc3:hq:L10", "tc3:h:L10:blocks"})
    expect_same_tiles(device_, name, normal_matrix(16, 64), Effort::fast);
  expect_same_tiles(device_, "tc3:h:L10", normal_matrix(20, 64, 3));
}

TEST_F(EmulatedTiles, HaveTheBytesOfTheCpuWithAllStateBits) {
  expect_same_tiles(device_, "tc3:h", normal_matrix(3, 32));
}

// Costs are products of tensor cores, of which a block takes 16 tiles.
TEST_F(EmulatedTiles, HaveTheBytesOfTheCpuAsProducts) {
  const auto expect_same = [&](const char* name, const Matrix& tiles) {
    const TrellisCode& code = testing_support::test_format(name).trellis;
    EXPECT_TRUE(cuda::encoding::plan_tile_search(code, 16, small_device()).products) << name;
    EXPECT_FALSE(cuda::encoding::plan_tile_search(code, 2, small_device()).products) << name;
    expect_same_tiles(device_, name, tiles, Effort::fast);
  };
  expect_same("tc2.5:h:L12", normal_matrix(16, 192));
  expect_same("tc3:h:L12", odd_tiles(16, 192));
}

TEST_F(EmulatedTiles, HaveTheBytesOfTheCpuForOddValues) {
  for (const char* name : {"tc3:h:L10", "tc2:h:L8:blocks"})
    expect_same_tiles(device_, name, odd_tiles(16, 96));
}

// Two rows of tiles are searched at a time, the last one with fewer rows.
TEST_F(EmulatedTiles, HaveTheBytesOfTheCpuInSeveralBatches) {
  ASSERT_EQ(device_.batch_tiles(), 8);
  expect_same_tiles(device_, "tc2:h:L8", normal_matrix(5 * 16 - 3, 64), Effort::fast);
}

TEST_F(EmulatedTiles, HaveTheBytesOfTheCpuWithErrorFeedback) {
  expect_same_fed_back(device_, "tc3:h:L10", normal_matrix(37, 160, 5), Effort::fast);
  expect_same_fed_back(device_, "tc2:h:L8:blocks", odd_tiles(18, 160), Effort::fast);
}

TEST_F(EmulatedTiles, RefuseWhatTheCpuRefuses) {
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 3e38f}) {
    Matrix m = normal_matrix(20, 64);
    for (size_t i = 64 * 17; i < 64 * 18; ++i)
      m.values[i] = value;
    const Format& format = testing_support::test_format("tc3:h:L10");
    const TileResult cpu = encode_tiles(format, m, Effort::full, nullptr, nullptr);
    EXPECT_FALSE(cpu.refusal.empty());
    EXPECT_EQ(encode_tiles(format, m, Effort::full, nullptr, &device_).refusal, cpu.refusal);
  }
  // The next call must work.
  expect_same_tiles(device_, "tc3:h:L10", normal_matrix(16, 32));
}

// A model's weights need it that is encoded while it is loaded.
TEST_F(EmulatedTiles, GiveTheDevicesMemoryBackBehindEveryTensor) {
  expect_same_tiles(device_, "tc2:h:L8", normal_matrix(16, 32), Effort::fast);
  EXPECT_EQ(cuda::allocated_bytes(), 0u);
  expect_same_fed_back(device_, "tc2:h:L8", normal_matrix(16, 32), Effort::fast);
  EXPECT_EQ(cuda::allocated_bytes(), 0u);
  Matrix wrong = normal_matrix(20, 32);
  wrong.values.back() = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(
      encode_tiles(testing_support::test_format("tc2:h:L8"), wrong, Effort::fast, nullptr, &device_)
          .refusal.empty());
  EXPECT_EQ(cuda::allocated_bytes(), 0u);
}

// Formats that exceed a block's shared memory are left to the CPU.
TEST_F(EmulatedTiles, KnowTheCodesThatFitIntoSharedMemory) {
  cuda::DeviceInfo info = small_device();
  EXPECT_TRUE(cuda::GpuTiles(info).searches(testing_support::test_format("tc4:hq")));
  EXPECT_TRUE(cuda::GpuTiles(info).searches(get_format("tc3:h:L14")));
  info.shared_bytes = 99 << 10;
  EXPECT_FALSE(cuda::GpuTiles(info).searches(testing_support::test_format("tc4:hq")));
  EXPECT_TRUE(cuda::GpuTiles(info).searches(get_format("tc3:h:L14")));
}

}  // namespace
}  // namespace walsh
