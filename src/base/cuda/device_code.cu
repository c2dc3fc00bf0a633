#include "base/cuda/device_code.h"

#include <cuda_runtime_api.h>

namespace walsh::cuda::detail {
namespace {

// Its attributes tell the architecture. Any kernel would do, because all are compiled for the same
// architectures.
__global__ void any_kernel() {}

}  // namespace

int device_code() {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, any_kernel);
  if (error != cudaSuccess) cudaGetLastError();
  return error == cudaSuccess ? attributes.binaryVersion : 0;
}

}  // namespace walsh::cuda::detail
