#include "kernels/cuda/step_kernel.cuh"

namespace walsh::cuda {

template <>
StepKernel step_kernel<4>(int flush) {
  return flush == 32 ? step_kernel_of<4, 32> : step_kernel_of<4, 128>;
}

}  // namespace walsh::cuda
