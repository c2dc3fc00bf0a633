// Tests the front of a block, run on the host (emulated/device.h).
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "walsh/error.h"
//
#include "kernels/emulated/device.h"
//
#include "kernels/cuda/front_data.h"

namespace walsh::cuda {
namespace {

TEST(FrontKernel, MakesInputsAsPreparationDoes) {
  for (const FrontCase& c : front_cases())
    expect_front_inputs(c);
}

TEST(FrontKernel, MultipliesNormedRows) {
  for (const FrontCase& c : front_cases())
    expect_front_products(c);
}

TEST(FrontKernel, ChoosesExpertsAsALaunchOfItsOwn) {
  for (const FrontCase& c : front_cases())
    expect_front_choices(c);
}

TEST(FrontKernel, RefusesWhatItDoesNotHave) {
  Front front({1, 256, 8, true}, 0);
  FrontCall call = front.call();
  EXPECT_NO_THROW(cuda::front(call, nullptr));
  call.m = kMaxVectors + 1;
  EXPECT_THROW(cuda::front(call, nullptr), Error);
  call = front.call();
  call.products = {};
  EXPECT_THROW(cuda::front(call, nullptr), Error);
  call = front.call();
  front.products[0].rows = kMostFrontRows + 1;
  EXPECT_THROW(cuda::front(call, nullptr), Error);
}

}  // namespace
}  // namespace walsh::cuda
