// Wraps PTX that every product of a warp group (wgmma, sm_90a) needs around it.
#pragma once

#include <cstdint>

namespace walsh::cuda::detail {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Keeps the compiler from moving accesses to operands across products, which run asynchronously
// without its knowledge.
template <int N>
__device__ __forceinline__ void pin(float (&d)[N][4]) {
#pragma unroll
  for (int i = 0; i < N; ++i)
    asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])::"memory");
}

template <int N, typename T>
__device__ __forceinline__ void pin(T (&d)[N][4]) {
#pragma unroll
  for (int i = 0; i < N; ++i)
    asm volatile("" : "+r"(d[i][0]), "+r"(d[i][1]), "+r"(d[i][2]), "+r"(d[i][3])::"memory");
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until all groups have ended, except the last `Pending`.
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Gives registers of this warp group, whose number is fixed at launch, to the others of its block,
// and keeps `Registers` per thread.
template <int Registers>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

// Adds one to a counter of the device, after the stores and before the loads of all threads that
// meet this one at barriers. Returns the number before.
__device__ __forceinline__ int count_arrival(int* counter) {
  int before;
  asm volatile("atom.add.acq_rel.gpu.s32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}

// Returns the descriptor of an operand in shared memory with rows of 128 bytes in the 128-byte
// swizzle, where 8 rows take 1024 bytes. The descriptor of what is 16 bytes further on is larger by
// one.
__device__ __forceinline__ uint64_t swizzled_operand(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | uint64_t{1} << 16 |
         static_cast<uint64_t>(1024 >> 4) << 32 | uint64_t{1} << 62;
}

#endif

}  // namespace walsh::cuda::detail
