#include "kernels/cuda/step_kernel.cuh"

namespace walsh::cuda {

template <>
StepKernel step_kernel<2>(int flush) {
  return flush == 32 ? step_kernel_of<2, 32> : step_kernel_of<2, 128>;
}

}  // namespace walsh::cuda
