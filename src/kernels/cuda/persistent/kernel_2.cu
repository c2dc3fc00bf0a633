#include "kernels/cuda/persistent/kernel.cuh"

namespace walsh::cuda {

template <>
StepKernel step_kernel<ScalarDecoder<2>>(int flush) {
  return flush == 32 ? step_kernel_of<OneCode<ScalarDecoder<2>, 32>>
                     : step_kernel_of<OneCode<ScalarDecoder<2>, 128>>;
}

}  // namespace walsh::cuda
