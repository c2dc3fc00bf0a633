// Tests gates of heads, run on the host (emulated/device.h): alone, and as a part of preparing
// inputs.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
//
#include "kernels/emulated/device.h"
//
#include "kernels/cuda/gated_heads_data.h"
#include "kernels/cuda/gemv_data.h"
#include "kernels/cuda/rows/gated_heads.h"

namespace walsh::cuda {
namespace {

TEST(GatedHeads, MultiplyHeadsAsWritten) {
  for (const GatedCase& c : gated_cases())
    expect_gated(c);
}

TEST(GatedHeads, AreGatedBeforeTheirNormIfGatesComeFirst) {
  for (const GatedCase& c : {GatedCase{1, 1, 512, true, 0, true},
                             {3, 2, 48, true, 1, true},
                             {2, 3, 600, true, 0, true}}) {
    expect_gated(c);
    EXPECT_FALSE(can_prepare(GatedRows(c).gates));
  }
}

TEST(GatedHeads, ArePreparedAsIfTheyHadBeenGatedBefore) {
  for (const GatedCase& c : gated_cases())
    expect_prepared(c);
}

TEST(GatedHeads, OfOtherSizesAreNotPrepared) {
  for (const int dim : {8, 16, 32, 64, 128, 256})
    EXPECT_TRUE(can_prepare({nullptr, 0, 0, nullptr, 0, dim})) << dim;
  for (const int dim : {4, 48, 96, 192, 512})
    EXPECT_FALSE(can_prepare({nullptr, 0, 0, nullptr, 0, dim})) << dim;
}

TEST(GatedHeads, LeaveTheQueriesBesideThem) {
  std::vector<float> from(2 * 3 * 2 * 8), q(2 * 3 * 8);
  for (size_t i = 0; i < from.size(); ++i)
    from[i] = static_cast<float>(i);
  take_queries(from.data(), 2, 3, 8, q.data(), nullptr);
  for (size_t i = 0; i < q.size(); ++i)
    EXPECT_EQ(q[i], from[i / 8 * 16 + i % 8]);
}

}  // namespace
}  // namespace walsh::cuda
