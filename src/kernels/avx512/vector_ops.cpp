// The AVX-512 instance of the element-wise operations in kernels/simd.
#include <cstdint>

#include "kernels/avx512/lanes.h"
#include "kernels/isa_tables.h"
#include "kernels/simd/quantize_i8.h"
#include "kernels/simd/vector_ops.h"

namespace walsh::avx512 {

void rms_norm(const float* x, const float* gain, int64_t n, float eps, float* out) {
  simd::rms_norm<Lanes>(x, gain, n, eps, out);
}

void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
  simd::silu_mul<Lanes>(gate, up, n, out);
}

void gelu_mul(const float* gate, const float* up, int64_t n, float* out) {
  simd::gelu_mul<Lanes>(gate, up, n, out);
}

void sigmoid_mul(const float* gate, const float* x, int64_t n, float* out) {
  simd::sigmoid_mul<Lanes>(gate, x, n, out);
}

void soft_cap(float* x, int64_t n, float cap) {
  simd::soft_cap<Lanes>(x, n, cap);
}

void quantize_i8(const float* x, ActivationsI8& out, int64_t t) {
  simd::quantize_i8<Lanes>(x, out, t);
}

void rope(float* x, int heads, int head_dim, int rotated, const float* cos, const float* sin) {
  simd::rope<Lanes>(x, heads, head_dim, rotated, cos, sin);
}

void to_f16(const float* x, int64_t n, uint16_t* out) {
  simd::to_f16<Lanes>(x, n, out);
}

void from_f16(const uint16_t* x, int64_t n, float* out) {
  simd::from_f16<Lanes>(x, n, out);
}

}  // namespace walsh::avx512
