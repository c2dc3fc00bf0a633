#include "kernels/cuda/step_kernel.cuh"

namespace walsh::cuda {

template <>
StepKernel step_kernel<3>(int flush) {
  return flush == 32 ? step_kernel_of<3, 32> : step_kernel_of<3, 128>;
}

}  // namespace walsh::cuda
