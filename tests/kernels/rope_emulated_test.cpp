// Tests rope and the append to the cache, run on the host (emulated/device.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>
//
#include "kernels/emulated/device.h"
//
#include "kernels/cuda/rope_data.h"

namespace walsh::cuda {
namespace {

TEST(RopeKernel, GivesTheBitsOfTheCpu) {
  for (const bool norms : {false, true}) {
    expect_rope(24, 24, 7, 1, 6, norms);
    expect_rope(128, 96, 4, 2, 17, norms);
    expect_rope(512, 512, 4, 2, 3, norms);
  }
  expect_rope(80, 0, 3, 3, 5, true);
}

TEST(RopeKernel, NormsValuesOrMakesThemOfKeysOrLeavesThemOut) {
  for (const int dim : {64, 512}) {
    for (const auto kind : {HeadValues::normed, HeadValues::normed_keys, HeadValues::none}) {
      SCOPED_TRACE(static_cast<int>(kind));
      for (const int64_t m : {1, 40})
        expect_rope(dim, dim, 8, 2, m, m == 1, false, kind);
    }
  }
}

TEST(RopeKernel, NormsComeBehindTheRotationToo) {
  for (const int dim : {64, 80, 512}) {
    for (const int64_t m : {1, 6, 40})
      expect_rope(dim, dim / 2, 4, 2, m, true, false, HeadValues::plain, true);
  }
}

TEST(RopeKernel, ReadsQueriesBesideTheirGates) {
  for (const int dim : {64, 256}) {
    for (const int64_t m : {1, 2, 16, 17, 100})
      expect_rope(dim, dim / 2, 6, 2, m, m % 2 == 0, true);
  }
}

}  // namespace
}  // namespace walsh::cuda
