// Wraps PTX of sm_90 with which blocks of a cluster read each other's shared memory.
#pragma once

#include <cstdint>

#include "kernels/cuda/async.cuh"

namespace walsh::cuda {

// Waits for all threads of the cluster. Stores before it are visible to loads after it, for all of
// them.
__device__ __forceinline__ void cluster_sync() {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
#endif
}

// Reads the shared memory of a block of the cluster at a cluster_address().
template <typename T>
__device__ __forceinline__ T read_of_block(uint32_t address) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  T value{};
#if __CUDA_ARCH__ >= 900
  if constexpr (sizeof(T) == 8) {
    uint64_t bits;
    asm volatile("ld.shared::cluster.u64 %0, [%1];" : "=l"(bits) : "r"(address) : "memory");
    value = __longlong_as_double(static_cast<int64_t>(bits));
  } else {
    uint32_t bits;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(bits) : "r"(address) : "memory");
    value = __uint_as_float(bits);
  }
#endif
  return value;
}

}  // namespace walsh::cuda
