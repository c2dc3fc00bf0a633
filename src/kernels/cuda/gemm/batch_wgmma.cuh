// Products of warp groups (wgmma) with weights in registers and inputs in shared memory, and the
// arrivals of bulk copies: thin names for PTX of sm_90a.
#pragma once

#include <cstdint>

namespace walsh::cuda::detail {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

#define WALSH_SUM4(x) "+r"(x[0]), "+r"(x[1]), "+r"(x[2]), "+r"(x[3])

// d = a b, or d += a b with `Add`, of a warp group: a 64 x 32 in registers, b 32 x 8 N in shared
// memory.
template <bool Add>
__device__ __forceinline__ void wgmma(int (&d)[8][4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
      "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, add;\n"
      "}\n"
      : WALSH_SUM4(d[0]), WALSH_SUM4(d[1]), WALSH_SUM4(d[2]), WALSH_SUM4(d[3]), WALSH_SUM4(d[4]),
        WALSH_SUM4(d[5]), WALSH_SUM4(d[6]), WALSH_SUM4(d[7])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(Add ? 1 : 0));
}

template <bool Add>
__device__ __forceinline__ void wgmma(int (&d)[6][4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %29, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n48k32.s32.s8.s8 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
      "%17, %18, %19, %20, %21, %22, %23"
      "}, {%24, %25, %26, %27}, %28, add;\n"
      "}\n"
      : WALSH_SUM4(d[0]), WALSH_SUM4(d[1]), WALSH_SUM4(d[2]), WALSH_SUM4(d[3]), WALSH_SUM4(d[4]),
        WALSH_SUM4(d[5])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(Add ? 1 : 0));
}

template <bool Add>
__device__ __forceinline__ void wgmma(int (&d)[4][4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
      "}, {%16, %17, %18, %19}, %20, add;\n"
      "}\n"
      : WALSH_SUM4(d[0]), WALSH_SUM4(d[1]), WALSH_SUM4(d[2]), WALSH_SUM4(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(Add ? 1 : 0));
}

// Keeps the compiler from moving reads and writes of operands across the edges of products, which
// run on while it knows nothing of it.
template <int N, typename T>
__device__ __forceinline__ void hold(T (&d)[N][4]) {
#pragma unroll
  for (int i = 0; i < N; ++i)
    asm volatile("" : WALSH_SUM4(d[i])::"memory");
}

#undef WALSH_SUM4

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// All but the last `Pending` groups have ended.
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// The descriptor of an operand in shared memory whose rows are 128 bytes in the 128-byte swizzle:
// 8 rows take 1024 bytes. 16 bytes further on is one more.
__device__ __forceinline__ uint64_t swizzled_operand(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | uint64_t{1} << 16 |
         static_cast<uint64_t>(1024 >> 4) << 32 | uint64_t{1} << 62;
}

// A barrier in shared memory that `count` arrivals, and the bytes that are expected, complete.
__device__ __forceinline__ void start_barrier(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void show_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive_barrier(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void arrive_expecting(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void wait_barrier(uint32_t barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// Bytes, a multiple of 16, from global to shared memory by the copy engine.
__device__ __forceinline__ void copy_bulk(uint32_t shared, const void* global, int bytes,
                                          uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared),
      "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
}

// A barrier of a warp group; `name` is not 0.
__device__ __forceinline__ void sync_group(int name) {
  asm volatile("bar.sync %0, 128;" ::"r"(name) : "memory");
}

#endif

}  // namespace walsh::cuda::detail
