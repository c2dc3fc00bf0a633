// Wraps PTX for asynchronous copies, dependent launches, and int8 products of tensor cores.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace walsh::cuda {

// Reads shared memory by its 32-bit address, which avoids converting generic pointers in inner
// loops. The compiler does not reorder these reads with copies, waits and barriers.
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ uint4 shared_words(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address));
  return v;
}

__device__ __forceinline__ float4 shared_float4(uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address));
  return v;
}

__device__ __forceinline__ float2 shared_float2(uint32_t address) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address));
  return v;
}

__device__ __forceinline__ uint32_t shared_word(uint32_t address) {
  uint32_t word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(address));
  return word;
}

// Unpacks two halves to floats.
__device__ __forceinline__ float2 halves(uint32_t word) {
  return __half22float2(*reinterpret_cast<const __half2*>(&word));
}

// Copies 16 bytes from global to shared memory past L1. It has no cache policy, because ptxas 13.0
// generates an illegal instruction for cp.async with one.
__device__ __forceinline__ void copy_async(uint32_t shared, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(global)
               : "memory");
}

__device__ __forceinline__ void prefetch(const void* global) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(global));
}

__device__ __forceinline__ void copy_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until all groups of this thread's copies have arrived, except the last `Pending`.
template <int Pending>
__device__ __forceinline__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// Lets the stream's next kernel start. Its blocks begin when there is room for them.
__device__ __forceinline__ void allow_next_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Waits until the kernels before this one have ended and their results are visible. Every kernel
// that is launched as a dependent one must call this, or later kernels could overtake earlier ones.
__device__ __forceinline__ void wait_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Returns the number of this block in its cluster, whose blocks can access each other's shared
// memory.
__device__ __forceinline__ int cluster_rank() {
  uint32_t rank = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return static_cast<int>(rank);
}

// These are the two halves of a barrier of all threads of the cluster, which does not order stores.
__device__ __forceinline__ void cluster_arrive_relaxed() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

// Returns the address in block `rank` of the cluster that corresponds to `address` in this block.
__device__ __forceinline__ uint32_t cluster_address(uint32_t address, int rank) {
#if __CUDA_ARCH__ >= 900
  uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
#else
  return address;
#endif
}

// Computes d = c + a b with int8 operands, where a is 16 x 32 and b is 32 x 8.
__device__ __forceinline__ void mma_int8(int (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1, const int (&c)[4]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%11,%12,%13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]),
        "r"(c[2]), "r"(c[3]));
}

}  // namespace walsh::cuda
