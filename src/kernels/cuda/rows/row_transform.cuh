// Prepares 256 columns of a product's input with a warp: loads, gates, norms, rotates and
// quantizes. A lane holds 8 neighbouring columns. Bits equal those of the CPU, because butterflies,
// scales and rounding are the same operations in the same order.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/rows/float_ptx.cuh"
#include "kernels/cuda/rows/form_view.h"

namespace walsh::cuda {

// Loads 8 columns of a row with in.vectors, where a lane's columns are wholly inside the row or
// beyond it.
__device__ __forceinline__ void load8_whole(const float* row, int column, const InputView& in,
                                            float (&v)[kLaneColumns]) {
  float4 a = make_float4(0, 0, 0, 0), b = a;
  if (column < in.width) {
    a = *reinterpret_cast<const float4*>(row + column);
    b = *reinterpret_cast<const float4*>(row + column + 4);
  }
  v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
  v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

__device__ __forceinline__ void load8(const float* row, int column, const InputView& in,
                                      float (&v)[kLaneColumns]) {
  if (in.vectors) {
    load8_whole(row, column, in, v);
  } else {
#pragma unroll
    for (int e = 0; e < kLaneColumns; ++e)
      v[e] = column + e < in.width ? row[column + e] : 0.0f;
  }
}

// Returns x / (1 + e^y). The reciprocal is approximate (1 ulp), because a division is long code and
// would be needed eight times per lane.
__device__ __forceinline__ float gate(float x, float y) {
  return x * near_reciprocal(1.0f + expf(y));
}

__device__ __forceinline__ float silu(float x) {
  return gate(x, -x);
}

// Returns -2 t for x / 2 (1 + tanh t) = x / (1 + e^(-2 t)), which is gelu.
__device__ __forceinline__ float gelu_exponent(float x) {
  constexpr float kSlope = -2 * 0.7978845608f;  // It is -2 sqrt(2 / pi).
  return kSlope * fmaf(0.044715f * (x * x), x, x);
}

// Computes v = function(v) * up for a lane's columns. This branches once for all of them instead of
// once for each.
__device__ __forceinline__ void apply_gate(GateFunction function, const float (&up)[kLaneColumns],
                                           float (&v)[kLaneColumns]) {
  if (function == GateFunction::gelu_tanh) {
#pragma unroll
    for (int e = 0; e < kLaneColumns; ++e)
      v[e] = gate(v[e], gelu_exponent(v[e])) * up[e];
  } else if (function == GateFunction::relu) {
#pragma unroll
    for (int e = 0; e < kLaneColumns; ++e)
      v[e] = (v[e] < 0 ? 0.0f : v[e]) * up[e];
  } else {
#pragma unroll
    for (int e = 0; e < kLaneColumns; ++e)
      v[e] = silu(v[e]) * up[e];
  }
}

// Loads columns from `column` on of input t, before the norm. It computes every gate and selects
// one, because the branches of apply_gate take more registers than its callers can spare.
__device__ __forceinline__ void load_input(const InputView& in, int64_t t, int column,
                                           float (&v)[kLaneColumns]) {
  load8(in.x + t * in.ldx, column, in, v);
  if (!in.up) return;
  float up[kLaneColumns];
  load8(in.up + t * in.ldx, column, in, up);
  const bool gelu = in.function == GateFunction::gelu_tanh;
  const bool relu = in.function == GateFunction::relu;
#pragma unroll
  for (int e = 0; e < kLaneColumns; ++e) {
    const float gated = gate(v[e], gelu ? gelu_exponent(v[e]) : -v[e]);
    v[e] = (relu ? (v[e] < 0 ? 0.0f : v[e]) : gated) * up[e];
  }
}

// Returns the sum of squares of a k-tile to all lanes. It is summed in double, because inputs of
// 1e30 are legal.
__device__ __forceinline__ double k_tile_squares(const float (&v)[kLaneColumns]) {
  double part[2] = {};  // There are two, so that chains are short.
#pragma unroll
  for (int e = 0; e < kLaneColumns; ++e) {
    const double d = static_cast<double>(v[e]);
    part[e % 2] = fma(d, d, part[e % 2]);
  }
  double sum = part[0] + part[1];
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(~0u, sum, distance);
  return sum;
}

// Returns 1 / rms from the row's shares. Lane l has share l % kShares.
__device__ __forceinline__ float inverse_rms(const InputView& in, double share) {
#pragma unroll
  for (int distance = kShares / 2; distance > 0; distance /= 2)
    share += __shfl_xor_sync(~0u, share, distance);
  return static_cast<float>(rsqrt(share * in.inverse_width + static_cast<double>(in.eps)));
}

__device__ __forceinline__ void apply_norm(const float (&gain)[kLaneColumns], float inverse,
                                           float (&v)[kLaneColumns]) {
#pragma unroll
  for (int e = 0; e < kLaneColumns; ++e)
    v[e] = v[e] * inverse * gain[e];
}

// Returns the size of the Hadamard segment of `column`: full blocks come first, then descending
// powers of two.
__device__ __forceinline__ int segment_size(const FormView& form, int column) {
  int offset = column - form.full;
  if (offset < 0) return form.block;
  const int tail = form.padded - form.full;
  int size = form.block / 2;
  for (; size >= 32; size /= 2) {
    if ((tail & size) == 0) continue;
    if (offset < size) break;
    offset -= size;
  }
  return size >= 32 ? size : 0;  // It is 0 beyond the row.
}

// Returns bits, of which bit e is set if the sign of column + e is negative (rotation_sign: bit 31
// of murmur3's finalizer, which its last step does not change).
__device__ __forceinline__ uint32_t sign_bits(const FormView& form, int column) {
  uint32_t bits = 0;
  if (!form.signs) return bits;
#pragma unroll
  for (int e = 0; e < kLaneColumns; ++e) {
    uint32_t h = static_cast<uint32_t>(column + e) * 0x9E3779B9u + form.seed;
    h ^= h >> 16;
    h *= 0x85EBCA6Bu;
    h ^= h >> 13;
    h *= 0xC2B2AE35u;
    bits |= (h >> 31) << e;
  }
  return bits;
}

// Returns 1 / sqrt(size) rounded to float; an odd power of two is an even one times 1/sqrt(2).
__device__ __forceinline__ float segment_norm(int size) {
  const int log = 31 - __clz(size);
  const float mantissa = log % 2 ? 0.707106781186547524f : 1.0f;
  return mantissa * __int_as_float((127 - log / 2) << 23);
}

__device__ __forceinline__ void butterfly(float& a, float& b) {
  const float sum = a + b, difference = a - b;
  a = sum;
  b = difference;
}

// Computes a butterfly stage between lanes. Each lane of a pair gets half of the results.
__device__ __forceinline__ void lane_stage(int h, int lane, float (&next)[kLaneColumns],
                                           const float (&v)[kLaneColumns]) {
  const int mask = h / kLaneColumns;
  const float sign = (lane & mask) != 0 ? -1.0f : 1.0f;
#pragma unroll
  for (int e = 0; e < kLaneColumns; ++e)
    next[e] = fmaf(sign, v[e], __shfl_xor_sync(~0u, v[e], mask));
}

// Applies signs (bit e: column e is negated), norm and the stages of distance < 256 for a k-tile's
// segments. `size` is this lane's segment size, at least `Least`; `whole` says that all lanes have
// the same size.
template <int Least = 0>
__device__ __forceinline__ void rotate_k_tile(int size, bool whole, uint32_t signs, int lane,
                                              float (&v)[kLaneColumns]) {
  const float norm = size > 0 ? segment_norm(size) : 0.0f;
#pragma unroll
  for (int e = 0; e < kLaneColumns; ++e)
    v[e] *= __uint_as_float(__float_as_uint(norm) ^ ((signs << (31 - e)) & 0x80000000u));
#pragma unroll
  for (int h = 1; h < kLaneColumns; h *= 2) {
#pragma unroll
    for (int e = 0; e < kLaneColumns; ++e)
      if ((e & h) == 0) butterfly(v[e], v[e | h]);
  }
  if (whole) {
#pragma unroll
    for (int h = kLaneColumns; h < kKTileColumns; h *= 2)
      if (h < Least || h < size) lane_stage(h, lane, v, v);
    return;
  }
#pragma unroll 1
  for (int h = kLaneColumns; h < kKTileColumns; h *= 2) {
    float next[kLaneColumns];
    lane_stage(h, lane, next, v);
#pragma unroll
    for (int e = 0; e < kLaneColumns; ++e)
      v[e] = h < size ? next[e] : v[e];
  }
}

// Rotates the segments of k-tile `k_tile`, with signs, norm and butterflies as the form says.
__device__ __forceinline__ void rotate_columns(const FormView& form, int k_tile, uint32_t signs,
                                               int lane, float (&v)[kLaneColumns]) {
  if (!form.block) return;
  const bool whole = (k_tile + 1) * kKTileColumns <= form.full;
  const int size =
      whole ? form.block : segment_size(form, k_tile * kKTileColumns + lane * kLaneColumns);
  rotate_k_tile(size, whole, signs, lane, v);
}

// Returns the largest magnitude in a group of 32 or 128 columns. Compared as bits, NaN is the
// largest. A warp reduction is quicker than one shuffle and the wait for it.
__device__ __forceinline__ float group_max(float value, int group, int lane) {
  if (group == 32) {
    value = larger_magnitude(value, __shfl_xor_sync(~0u, value, 1));
    return larger_magnitude(value, __shfl_xor_sync(~0u, value, 2));
  }
  const uint32_t bits = __float_as_uint(fabsf(value));
  const uint32_t lower = __reduce_max_sync(~0u, lane < 16 ? bits : 0);
  const uint32_t upper = __reduce_max_sync(~0u, lane < 16 ? 0 : bits);
  return __uint_as_float(lane < 16 ? lower : upper);
}

__device__ __forceinline__ int group_sum(int value, int group, int lane) {
  if (group == 32) {
    value += __shfl_xor_sync(~0u, value, 1);
    return value + __shfl_xor_sync(~0u, value, 2);
  }
  const int lower = __reduce_add_sync(~0u, lane < 16 ? value : 0);
  const int upper = __reduce_add_sync(~0u, lane < 16 ? 0 : value);
  return lane < 16 ? lower : upper;
}

struct Quantized {
  uint32_t low, high;  // They are int8 of columns 0..3 and 4..7 of the lane.
  float scale;         // The group has this scale.
  int sum;             // It is over the group.
};

// Holds the int8 scale of a group, as in the CPU's quantize_i8. A group below 2^-100 counts as
// zero; one that is not finite has scale NaN and q = 0.
struct GroupScale {
  float scale, inverse;
  bool used;
};

__device__ __forceinline__ GroupScale group_scale(const float (&v)[kLaneColumns], int group,
                                                  int lane) {
  const float largest =
      group_max(larger_magnitude(
                    larger_magnitude(larger_magnitude(v[0], v[1]), larger_magnitude(v[2], v[3])),
                    larger_magnitude(larger_magnitude(v[4], v[5]), larger_magnitude(v[6], v[7]))),
                group, lane);
  const bool finite = largest < __uint_as_float(0x7f800000u);
  GroupScale s;
  s.used = finite && largest >= 0x1p-100f;
  s.scale = s.used ? largest / 127.0f : finite ? 0.0f : __uint_as_float(0x7fc00000u);
  s.inverse = s.used ? 127.0f / largest : 0.0f;
  return s;
}

// Quantizes the next plane of v, leaves the remainder in v, and sets `s` to the scale of the plane
// after it.
__device__ __forceinline__ Quantized quantize_plane(float (&v)[kLaneColumns], GroupScale& s,
                                                    int group, int lane) {
  // It is 1.5 * 2^23; adding it rounds, and the low byte is q.
  constexpr float kRound = 12582912.0f;
  uint32_t q[kLaneColumns];
#pragma unroll
  for (int e = 0; e < kLaneColumns; ++e) {
    const float rounded = v[e] * s.inverse + kRound;
    q[e] = __float_as_uint(rounded);
    v[e] = v[e] - s.scale * (rounded - kRound);
  }
  Quantized out;
  out.low = __byte_perm(__byte_perm(q[0], q[1], 0x0040), __byte_perm(q[2], q[3], 0x0040), 0x5410);
  out.high = __byte_perm(__byte_perm(q[4], q[5], 0x0040), __byte_perm(q[6], q[7], 0x0040), 0x5410);
  if (!s.used) out.low = out.high = 0;
  out.scale = s.scale;
  const int ones = 0x01010101;
  out.sum = group_sum(
      __dp4a(static_cast<int>(out.low), ones, __dp4a(static_cast<int>(out.high), ones, 0)), group,
      lane);
  s.scale = s.scale / 254.0f;
  s.inverse = s.inverse * 254.0f;
  return out;
}

// Returns the byte of a k-tile at which a lane's 8 columns start (activation_byte).
__device__ __forceinline__ int lane_byte(int lane) {
  return (lane / 16) * 128 + (lane % 4) * 32 + (lane / 4 % 4) * 8;
}

__device__ __forceinline__ void store_rows(const FormView& form, int64_t t, int column,
                                           const float (&v)[kLaneColumns]) {
#pragma unroll
  for (int e = 0; e < kLaneColumns; ++e) {
    if (column + e >= form.padded) continue;
    const int64_t index = t * form.stride + column + e;
    if (form.row_type == DType::f32) {
      static_cast<float*>(form.rows)[index] = v[e];
    } else if (form.row_type == DType::f16) {
      static_cast<__half*>(form.rows)[index] = __float2half_rn(v[e]);
    } else {
      static_cast<__nv_bfloat16*>(form.rows)[index] = __float2bfloat16_rn(v[e]);
    }
  }
}

__device__ __forceinline__ void store_planes(const FormView& form, int64_t t, int k_tile, int lane,
                                             float (&v)[kLaneColumns]) {
  GroupScale s = group_scale(v, form.group, lane);
  const int64_t groups = form.cols / form.group;
  for (int p = 0; p < form.planes; ++p) {
    const int64_t plane = t * form.planes + p;
    const Quantized part = quantize_plane(v, s, form.group, lane);
    int8_t* q = form.q + plane * form.cols + k_tile * kKTileColumns + lane_byte(lane);
    *reinterpret_cast<uint2*>(q) = make_uint2(part.low, part.high);
    if (lane % (form.group / kLaneColumns) != 0) continue;
    const int64_t group =
        plane * groups + (k_tile * kKTileColumns + lane * kLaneColumns) / form.group;
    form.scales[group] = part.scale;
    form.sums[group] = part.sum;
  }
}

}  // namespace walsh::cuda
