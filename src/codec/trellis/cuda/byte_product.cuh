// Has the tensor-core product that tile_products.cuh uses. Tests on the host replace this file.
#pragma once

#include <cstdint>

namespace walsh::cuda::encoding {

// Computes d = a b + c of a warp, m16n8k16: rows of unsigned bytes times columns of signed ones.
// Lane l has bytes 4 (l % 4) to 4 (l % 4) + 3 of rows l / 4 (a[0]) and l / 4 + 8 (a[1]), and of
// column l / 4. Its sums are those of rows l / 4 (d[0], d[1]) and l / 4 + 8 (d[2], d[3]) in columns
// 2 (l % 4) and the next.
__device__ __forceinline__ void multiply_bytes(int32_t (&d)[4], const uint32_t (&a)[2], uint32_t b,
                                               const int32_t (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%7,%8,%9,%10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}

__device__ __forceinline__ int32_t least_of(int32_t a, int32_t b, int32_t c) {
  return __vimin3_s32(a, b, c);
}

}  // namespace walsh::cuda::encoding
