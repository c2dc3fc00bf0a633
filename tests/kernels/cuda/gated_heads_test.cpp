// Tests gates of heads on a GPU.
#include "gated_heads_data.h"

namespace walsh::cuda {
namespace {

TEST(GpuGatedHeads, MultiplyHeadsAsWritten) {
  WALSH_NEED_GPU();
  for (const GatedCase& c : gated_cases())
    expect_gated(c);
}

TEST(GpuGatedHeads, ArePreparedAsIfTheyHadBeenGatedBefore) {
  WALSH_NEED_GPU();
  for (const GatedCase& c : gated_cases())
    expect_prepared(c);
}

}  // namespace
}  // namespace walsh::cuda
