#include "kernels/cuda/persistent/kernel.cuh"

namespace walsh::cuda {

template <>
StepKernel step_kernel<ScalarDecoder<4>>(int flush) {
  return flush == 32 ? step_kernel_of<OneCode<ScalarDecoder<4>, 32>>
                     : step_kernel_of<OneCode<ScalarDecoder<4>, 128>>;
}

}  // namespace walsh::cuda
