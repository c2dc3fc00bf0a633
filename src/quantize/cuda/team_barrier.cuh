// Where the blocks of a team meet, which are a cluster (tile_block.cuh); tests on the host have
// their own.
#pragma once

namespace walsh::cuda::encoding {

// All threads of the cluster; orders what they write to global memory, too.
__device__ __forceinline__ void meet_team() {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n\t"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
#endif
}

}  // namespace walsh::cuda::encoding
