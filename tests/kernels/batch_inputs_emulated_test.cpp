// Tests inputs of a batch by kernels that run on the host (emulated/device.h).
#include <gtest/gtest.h>
//
#include "kernels/emulated/device.h"
//
#include "kernels/cuda/batch_inputs_data.h"
#include "kernels/cuda/launch.h"

namespace walsh::cuda {
namespace {

TEST(BatchInputs, AreThoseOfTwoLaunches) {
  expect_all_batch_inputs();
}

// With few multiprocessors a row belongs to one block, otherwise to a cluster.
TEST(BatchInputs, AreThoseOfTwoLaunchesOnASmallDevice) {
  const int before = emulated::multiprocessors;
  emulated::multiprocessors = 3;
  expect_all_batch_inputs();
  emulated::multiprocessors = before;
}

}  // namespace
}  // namespace walsh::cuda
