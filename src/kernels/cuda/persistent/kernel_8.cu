#include "kernels/cuda/persistent/kernel.cuh"

namespace walsh::cuda {

template <>
StepKernel step_kernel<ScalarDecoder<8>>(int flush) {
  return flush == 32 ? step_kernel_of<OneCode<ScalarDecoder<8>, 32>>
                     : step_kernel_of<OneCode<ScalarDecoder<8>, 128>>;
}

}  // namespace walsh::cuda
