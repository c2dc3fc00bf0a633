// Wraps PTX that tests replace where kernels run on the host: fragments of halves for mma.m16n8k16,
// copies to their tiles, and approximate float functions.
#pragma once

#include <cstdint>

// Declares dynamic shared memory for tiles, aligned so that the pieces of a row can be addressed
// with exclusive or.
#define WALSH_SHARED_TILES(name) extern __shared__ __align__(1024) unsigned char name[]

namespace walsh::cuda {

// Copies 16 bytes from global to shared memory, or writes zeros.
__device__ __forceinline__ void copy_async_or_zero(uint32_t shared, const void* global, bool copy) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(copy ? 16 : 0)
               : "memory");
}

// Loads four 8 x 8 matrices of halves: lane l gives the address of row l % 8 of matrix l / 8 and
// gets columns 2 (l % 4) and + 1 of row l / 4 of each matrix, transposed in the second function.
__device__ __forceinline__ void load_matrices(uint32_t (&d)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(shared)
               : "memory");
}

__device__ __forceinline__ void load_transposed(uint32_t (&d)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(shared)
               : "memory");
}

__device__ __forceinline__ uint32_t transpose8x8(uint32_t v) {
  uint32_t out;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(v));
  return out;
}

// Computes c += a b for halves, where a is 16 x 16 and b is 16 x 8.
__device__ __forceinline__ void mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                        uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Returns 2^x; 0 for minus infinity.
__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Returns 1 / x, correct except for the last place; 0 if the result would not be a normal number.
__device__ __forceinline__ float quick_reciprocal(float x) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
}

}  // namespace walsh::cuda
