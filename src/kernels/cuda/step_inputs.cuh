// The inputs of a step's products: made by every block for itself, a unit of 256 columns per warp,
// or, where there are more units than warps, by all blocks together through memory.
//
// RMSNorm divides all columns by the same number. Rotation is linear and int8 values are relative
// to their group's largest, so only scales would change: the division is done to the product's
// results, and nothing waits for the sum of the squares.
#pragma once

#include "kernels/cuda/matvec_inputs.cuh"
#include "kernels/cuda/step_phase.h"

namespace walsh::cuda {

// One unit of an input, a warp's.
class InputUnit {
 public:
  __device__ __forceinline__ InputUnit(const MatvecArgs& args, int unit, int lane)
      : in_(args.in),
        form_(args.form),
        unit_(unit),
        lane_(lane),
        column_(unit * kUnitColumns + lane * kLaneColumns),
        signs_(form_.block ? sign_bits(form_, column_) : 0) {}

  // Its values, times gains.
  __device__ __forceinline__ void load() {
    load_input<true>(in_, 0, column_, v_);
    if (!in_.gain) return;
    float gain[kLaneColumns];
    load8_whole(in_.gain, column_, in_, gain);
    sum_squares();
#pragma unroll
    for (int e = 0; e < kLaneColumns; ++e)
      v_[e] *= gain[e];
  }

  __device__ __forceinline__ Quantized quantize() {
    if (form_.block == kUnitColumns && (unit_ + 1) * kUnitColumns <= form_.full) {
      rotate_unit(kUnitColumns, true, signs_, lane_, v_);
    } else {
      rotate_columns(form_, unit_, signs_, lane_, v_);
    }
    return form_.group == 32 ? quantize_group(32) : quantize_group(128);
  }

  // Whether this lane writes the scale of its group, and which of the unit's it is.
  __device__ __forceinline__ bool has_scale() const {
    return (lane_ & (form_.group == 32 ? 3 : 15)) == 0;
  }
  __device__ __forceinline__ int group() const {
    return lane_ >> (form_.group == 32 ? 2 : 4);
  }

  // Of the unit's values before gains; by and in all lanes.
  __device__ __forceinline__ double squares() const {
    float sum = squares_;
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      sum += __shfl_xor_sync(~0u, sum, distance);
    const double up = static_cast<double>(__uint_as_float(exponent_ << 23));
    return static_cast<double>(sum) * up * up;
  }

 private:
  __device__ __forceinline__ Quantized quantize_group(int group) {
    GroupScale scale = group_scale(v_, group);
    return quantize_plane(v_, scale, group);
  }

  // In float, after division by the power of two of the largest value: squares may be beyond float.
  __device__ __forceinline__ void sum_squares() {
    uint32_t largest = 0;
#pragma unroll
    for (int e = 0; e < kLaneColumns; ++e)
      largest = max(largest, __float_as_uint(v_[e]) & 0x7fffffffu);
    exponent_ = min(max(__reduce_max_sync(~0u, largest) >> 23, 1u), 253u);
    const float down = __uint_as_float((254 - exponent_) << 23);
    float part[2] = {};
#pragma unroll
    for (int e = 0; e < kLaneColumns; ++e) {
      const float v = v_[e] * down;
      part[e % 2] = fmaf(v, v, part[e % 2]);
    }
    squares_ = part[0] + part[1];
  }

  const InputView& in_;
  const FormView& form_;
  const int unit_, lane_, column_;
  const uint32_t signs_;
  float v_[kLaneColumns];
  float squares_ = 0;      // of this lane
  uint32_t exponent_ = 1;  // of what they were divided by
};

// All units into this block's shared memory, the sums of their squares to `squares`.
template <typename Wait>
__device__ __forceinline__ void make_own_inputs(const MatvecArgs& args, const InputImage& image,
                                                double* squares, int warp, int lane,
                                                const Wait& wait) {
  InputUnit unit(args, warp, lane);
  wait();
  if (warp < args.units) {
    unit.load();
    const Quantized part = unit.quantize();
    std::byte* to = image.units + warp * image.unit_bytes(args.form.group);
    *reinterpret_cast<uint2*>(to + lane_byte(lane)) = make_uint2(part.low, part.high);
    if (unit.has_scale()) {
      reinterpret_cast<float2*>(to + kUnitColumns)[unit.group()] =
          make_float2(part.scale, static_cast<float>(part.sum) * part.scale);
    }
    if (args.in.gain) {
      const double sum = unit.squares();
      if (lane == 0) squares[warp] = sum;
    }
  }
  __syncthreads();
}

// This block's units to where all blocks read them.
__device__ __forceinline__ void make_shared_inputs(const MatvecArgs& args, double* squares,
                                                   int warp, int lane) {
  const auto blocks = static_cast<int>(gridDim.x);
#pragma unroll 1
  for (int i = static_cast<int>(blockIdx.x) + warp * blocks; i < args.units;
       i += kStepWarps * blocks) {
    InputUnit unit(args, i, lane);
    unit.load();
    const Quantized part = unit.quantize();
    *reinterpret_cast<uint2*>(args.form.q + i * kUnitColumns + lane_byte(lane)) =
        make_uint2(part.low, part.high);
    if (unit.has_scale()) {
      const int group = i * (kUnitColumns / args.form.group) + unit.group();
      args.form.scales[group] = part.scale;
      args.form.sums[group] = part.sum;
    }
    if (args.in.gain) {
      const double sum = unit.squares();
      if (lane == 0) squares[i] = sum;
    }
  }
}

// What all blocks have made together. All loads are on their way before the first one is used.
__device__ __forceinline__ void read_shared_inputs(const MatvecArgs& args, const InputImage& image,
                                                   const double* from, double* squares) {
  constexpr int kThreads = kStepWarps * 32;
  const auto thread = static_cast<int>(threadIdx.x);
  const int groups = kUnitColumns / args.x_group, unit_bytes = image.unit_bytes(args.x_group);
  const auto* q = reinterpret_cast<const uint4*>(args.q);
  const auto read_scales = [&](int i) {
    const float scale = __ldcg(args.x_scales + i);
    return make_float2(scale, static_cast<float>(__ldcg(args.x_sums + i)) * scale);
  };
  const auto store_scales = [&](int i, float2 scales) {
    auto* to = reinterpret_cast<float2*>(image.units + i / groups * unit_bytes + kUnitColumns);
    to[i % groups] = scales;
  };
  const int count = args.units * groups;
  float2 scales{};
  double sum = 0;
  if (thread < count) scales = read_scales(thread);
  if (args.in.gain && thread < args.units) sum = __ldcg(from + thread);
#pragma unroll 4
  for (int i = thread; i < args.units * 16; i += kThreads)
    *reinterpret_cast<uint4*>(image.units + i / 16 * unit_bytes + i % 16 * 16) = __ldcg(q + i);
  if (thread < count) store_scales(thread, scales);
  for (int i = thread + kThreads; i < count; i += kThreads)
    store_scales(i, read_scales(i));
  if (args.in.gain && thread < args.units) squares[thread] = sum;
  __syncthreads();
}

// What results of a normed input are multiplied by; by whole warps.
__device__ __forceinline__ float norm_factor(const MatvecArgs& args, const double* squares,
                                             int lane) {
  double share = 0;
  for (int unit = lane; unit < args.units; unit += 32)
    share += squares[unit];
  share *= args.in.inverse_width;
  auto mean = static_cast<float>(share);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    mean += __shfl_xor_sync(~0u, mean, distance);
  mean += args.in.eps;
  if (mean > 1e-30f && mean < 1e30f) return rsqrtf(mean);  // within 2 units of the last place
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    share += __shfl_xor_sync(~0u, share, distance);
  return static_cast<float>(rsqrt(share + static_cast<double>(args.in.eps)));
}

}  // namespace walsh::cuda
