#include "base/cuda/device_code.h"

#include <cuda_runtime_api.h>

namespace walsh::cuda::detail {
namespace {

// Any kernel will do, since all are compiled for the same architectures.
__global__ void any_kernel() {}

}  // namespace

int device_code() {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, any_kernel);
  if (error != cudaSuccess) cudaGetLastError();
  return error == cudaSuccess ? attributes.binaryVersion : 0;
}

}  // namespace walsh::cuda::detail
