// Wraps the PTX by which the blocks of a step communicate: words and packets in memory, and bytes
// sent to the shared memory of the other block of a pair. Tests replace this file, so that kernels
// run on the host (tests/kernels/emulated).
#pragma once

#include <cstddef>
#include <cstdint>

namespace walsh::cuda {

// A launch sets the size of this shared memory, which has rings of weights, inputs, sums and phases
// (ProgramMemory, ProgramArgs).
extern __shared__ __align__(128) std::byte program_shared[];

__device__ __forceinline__ uint32_t exchanged_word(const float* p) {
  uint32_t word;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(p) : "memory");
  return word;
}

__device__ __forceinline__ uint4 exchanged_words(const float* p) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}

__device__ __forceinline__ void exchange_word(float* p, uint32_t word) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(word) : "memory");
}

// Reads 16 bytes that are read and written as one. The tag is the lowest bit of w.
__device__ __forceinline__ uint4 exchanged_packet(const uint4* p) {
  uint64_t low, high;
  asm volatile(
      "{ .reg .b128 packet;\n"
      "ld.relaxed.gpu.global.b128 packet, [%2];\n"
      "mov.b128 {%0, %1}, packet; }"
      : "=l"(low), "=l"(high)
      : "l"(p)
      : "memory");
  return make_uint4(static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
                    static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32));
}

__device__ __forceinline__ void exchange_packet(uint4* p, uint4 v) {
  const uint64_t low = v.x | static_cast<uint64_t>(v.y) << 32;
  const uint64_t high = v.z | static_cast<uint64_t>(v.w) << 32;
  asm volatile(
      "{ .reg .b128 packet;\n"
      "mov.b128 packet, {%1, %2};\n"
      "st.relaxed.gpu.global.b128 [%0], packet; }" ::"l"(p),
      "l"(low), "l"(high)
      : "memory");
}

// Waits in one of two places, number 0 and 1, where some warps of a block can meet, until `threads`
// threads, its own included, have called this or announce_to.
__device__ __forceinline__ void meet_some(int meeting, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(meeting + 1), "r"(threads) : "memory");
}

// Comes to a meeting without waiting for the others.
__device__ __forceinline__ void announce_to(int meeting, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(meeting + 1), "r"(threads) : "memory");
}

// Prefetches a line of memory into the L2 cache.
__device__ __forceinline__ void expect_line(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

// Initializes a barrier in shared memory that completes when one thread and the announced bytes
// have arrived.
__device__ __forceinline__ void begin_arrivals(uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
#endif
}

// Makes the initialized barriers visible to the other block.
__device__ __forceinline__ void show_arrivals() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

__device__ __forceinline__ void expect_bytes(uint32_t barrier, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
#endif
}

// Sends 8 bytes to place `to` of the other block, where `barrier` counts them.
__device__ __forceinline__ void send_to_block(uint32_t to, uint2 v, uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [%0], {%1, %2}, [%3];" ::
          "r"(to),
      "r"(v.x), "r"(v.y), "r"(barrier)
      : "memory");
#endif
}

// Returns whether the phase of the barrier with this parity is complete. It may wait for a while
// before it answers no.
__device__ __forceinline__ bool have_arrived(uint32_t barrier, int parity) {
  uint32_t done = 1;
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .pred done;\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done; }"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
#endif
  return done != 0;
}

}  // namespace walsh::cuda
