// Multiplies with warp groups (wgmma, sm_90a). Both operands are int8; the left one is in
// registers, and the right one, whose columns are contiguous, is in shared memory.
#pragma once

#include <cstdint>

namespace walsh::cuda::detail {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

#define WALSH_SUM4(x) "+r"(x[0]), "+r"(x[1]), "+r"(x[2]), "+r"(x[3])

// Computes d = a b, or d += a b with `Add`, for a warp group, where a is 64 x 32, b is 32 x 8 N,
// and d has int32 sums.
template <bool Add>
__device__ __forceinline__ void multiply_int8(int (&d)[4][4], const uint32_t (&a)[4], uint64_t b) {
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

template <bool Add>
__device__ __forceinline__ void multiply_int8(int (&d)[8][4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, add;\n"
      "}\n"
      : WALSH_SUM4(d[0]), WALSH_SUM4(d[1]), WALSH_SUM4(d[2]), WALSH_SUM4(d[3]), WALSH_SUM4(d[4]),
        WALSH_SUM4(d[5]), WALSH_SUM4(d[6]), WALSH_SUM4(d[7])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(Add ? 1 : 0));
}

template <bool Add>
__device__ __forceinline__ void multiply_int8(int (&d)[12][4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %53, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n96k32.s32.s8.s8 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
      "}, {%48, %49, %50, %51}, %52, add;\n"
      "}\n"
      : WALSH_SUM4(d[0]), WALSH_SUM4(d[1]), WALSH_SUM4(d[2]), WALSH_SUM4(d[3]), WALSH_SUM4(d[4]),
        WALSH_SUM4(d[5]), WALSH_SUM4(d[6]), WALSH_SUM4(d[7]), WALSH_SUM4(d[8]), WALSH_SUM4(d[9]),
        WALSH_SUM4(d[10]), WALSH_SUM4(d[11])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(Add ? 1 : 0));
}

template <bool Add>
__device__ __forceinline__ void multiply_int8(int (&d)[16][4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, add;\n"
      "}\n"
      : WALSH_SUM4(d[0]), WALSH_SUM4(d[1]), WALSH_SUM4(d[2]), WALSH_SUM4(d[3]), WALSH_SUM4(d[4]),
        WALSH_SUM4(d[5]), WALSH_SUM4(d[6]), WALSH_SUM4(d[7]), WALSH_SUM4(d[8]), WALSH_SUM4(d[9]),
        WALSH_SUM4(d[10]), WALSH_SUM4(d[11]), WALSH_SUM4(d[12]), WALSH_SUM4(d[13]),
        WALSH_SUM4(d[14]), WALSH_SUM4(d[15])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(Add ? 1 : 0));
}

#undef WALSH_SUM4

#endif

}  // namespace walsh::cuda::detail
