#include "kernels/cuda/batch_inputs_data.h"

namespace walsh::cuda {
namespace {

TEST(GpuBatchInputs, AreThoseOfTwoLaunches) {
  WALSH_NEED_GPU();
  expect_all_batch_inputs();
}

}  // namespace
}  // namespace walsh::cuda
