#include "kernels/cuda/many_rows_data.h"
#include "kernels/cuda/rope_data.h"

namespace walsh::cuda {
namespace {

TEST(GpuManyRows, InputsHaveTheBitsOfFewRows) {
  WALSH_NEED_GPU();
  for (const ManyCase& c : many_cases()) {
    expect_many_rows(c, devices().front().multiprocessors);
    if (HasFatalFailure()) return;
  }
}

TEST(GpuManyRows, SumsOfExpertsHaveTheBitsOfOneRow) {
  WALSH_NEED_GPU();
  const int multiprocessors = devices().front().multiprocessors;
  for (const int chosen : {1, 3, 8, 11})
    expect_many_sums(2048, chosen, multiprocessors);
  expect_many_sums(2880, 4, multiprocessors);
}

TEST(GpuManyRows, RopeGivesTheBitsOfTheCpu) {
  WALSH_NEED_GPU();
  constexpr int64_t kRows = 250;
  const int heads = static_cast<int>(64 * devices().front().multiprocessors / kRows + 1);
  for (const int dim : {24, 64, 80, 128, 256}) {
    for (const bool norms : {false, true}) {
      expect_rope(dim, dim, heads, 4, kRows, norms);
      expect_rope(dim, dim / 2, heads, 3, kRows, norms, true);
    }
    expect_rope(dim, 0, heads + 1, 5, kRows, true);
  }
}

}  // namespace
}  // namespace walsh::cuda
