// Multiplies with warp groups (wgmma, sm_90a). Both operands are f16; the left one is in registers,
// and the right one is in shared memory.
#pragma once

#include <cstdint>

namespace walsh::cuda::detail {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

#define WALSH_SUM4(x) "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])

// Adds a b to d for a warp group, where a is 64 x 16, b is 16 x 8 N, and d has float32 sums. With
// `Transposed` 1, a row of b is contiguous in shared memory, otherwise a column.
template <int Transposed = 0>
__device__ __forceinline__ void multiply_f16(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, 1, 1, 1, %37;\n"
      : WALSH_SUM4(d[0]), WALSH_SUM4(d[1]), WALSH_SUM4(d[2]), WALSH_SUM4(d[3]), WALSH_SUM4(d[4]),
        WALSH_SUM4(d[5]), WALSH_SUM4(d[6]), WALSH_SUM4(d[7])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(Transposed));
}

template <int Transposed = 0>
__device__ __forceinline__ void multiply_f16(float (&d)[16][4], const uint32_t (&a)[4],
                                             uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, 1, 1, 1, %69;\n"
      : WALSH_SUM4(d[0]), WALSH_SUM4(d[1]), WALSH_SUM4(d[2]), WALSH_SUM4(d[3]), WALSH_SUM4(d[4]),
        WALSH_SUM4(d[5]), WALSH_SUM4(d[6]), WALSH_SUM4(d[7]), WALSH_SUM4(d[8]), WALSH_SUM4(d[9]),
        WALSH_SUM4(d[10]), WALSH_SUM4(d[11]), WALSH_SUM4(d[12]), WALSH_SUM4(d[13]),
        WALSH_SUM4(d[14]), WALSH_SUM4(d[15])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(Transposed));
}

#undef WALSH_SUM4

#endif

}  // namespace walsh::cuda::detail
