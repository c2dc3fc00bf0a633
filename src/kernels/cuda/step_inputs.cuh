// The inputs of a step's products: made by every block for itself, a unit of 256 columns per warp,
// or, where there are more units than warps, by all blocks together through memory.
//
// RMSNorm divides all columns by the same number. Rotation is linear and int8 values are relative
// to their group's largest, so only scales would change: the division is done to the product's
// results, and nothing waits for the sum of the squares.
#pragma once

#include "kernels/cuda/matvec_inputs.cuh"
#include "kernels/cuda/step_exchange.cuh"

namespace walsh::cuda {

// One unit of an input, a warp's. What does not come from another phase is made ready while that is
// on its way.
class InputUnit {
 public:
  __device__ __forceinline__ InputUnit(const StepPhase& phase, uint32_t epoch, int unit, int lane)
      : phase_(phase),
        in_(phase.matvec.in),
        form_(phase.matvec.form),
        epoch_(epoch),
        unit_(unit),
        lane_(lane),
        column_(unit * kUnitColumns + lane * kLaneColumns) {}

  // Its values, times gains; does `meanwhile` while they are on their way.
  template <typename Meanwhile>
  __device__ __forceinline__ void load(const Meanwhile& meanwhile) {
    const auto prepare = [&] {
      if (in_.gain && column_ < in_.width) prefetch(in_.gain + column_);
      signs_ = form_.block ? sign_bits(form_, column_) : 0;
      meanwhile();
    };
    if (in_.up) {
      float v[2][kLaneColumns];
      read<2>({in_.x, in_.up}, prepare, v);
#pragma unroll
      for (int e = 0; e < kLaneColumns; ++e)
        v_[e] = silu(v[0][e]) * v[1][e];
    } else {
      float v[1][kLaneColumns];
      read<1>({in_.x}, prepare, v);
#pragma unroll
      for (int e = 0; e < kLaneColumns; ++e)
        v_[e] = v[0][e];
    }
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
  template <int Rows, typename Prepare>
  __device__ __forceinline__ void read(const float* const (&rows)[Rows], const Prepare& prepare,
                                       float (&v)[Rows][kLaneColumns]) const {
    if (!phase_.in[0].here) {
#pragma unroll
      for (int r = 0; r < Rows; ++r)
        load8_whole(rows[r], column_, in_, v[r]);
      prepare();
      return;
    }
    ExchangeReader<Rows> reader;
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      reader.from[r] = rows[r] + unit_ * kUnitColumns + lane_ * 4;
      reader.bits[r] = tag_bit(phase_.in[r], epoch_);
    }
    if (phase_.after_attention)
      await_one(rows[Rows - 1] + unit_ * kUnitColumns, reader.bits[Rows - 1]);
    reader.read(column_ < in_.width, prepare, v);
  }

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

  const StepPhase& phase_;
  const InputView& in_;
  const FormView& form_;
  const uint32_t epoch_;
  const int unit_, lane_, column_;
  uint32_t signs_ = 0;
  float v_[kLaneColumns];
  float squares_ = 0;      // of this lane
  uint32_t exponent_ = 1;  // of what they were divided by
};

// All units into this block's shared memory, the sums of their squares to `squares`. `meanwhile` is
// done by every warp while it waits.
template <typename Meanwhile>
__device__ __forceinline__ void make_own_inputs(const StepPhase& phase, uint32_t epoch,
                                                const InputImage& image, double* squares, int warp,
                                                int lane, const Meanwhile& meanwhile) {
  const MatvecArgs& args = phase.matvec;
  if (warp >= args.units) {
    meanwhile();
  } else {
    InputUnit unit(phase, epoch, warp, lane);
    unit.load(meanwhile);
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
__device__ __forceinline__ void make_shared_inputs(const StepPhase& phase, uint32_t epoch, int warp,
                                                   int lane) {
  const MatvecArgs& args = phase.matvec;
  const auto blocks = static_cast<int>(gridDim.x);
  const uint32_t bit = tag_bit(phase.out[0], epoch);
#pragma unroll 1
  for (int i = last_first() + warp * blocks; i < args.units; i += kStepWarps * blocks) {
    InputUnit unit(phase, epoch, i, lane);
    unit.load([] {});
    const Quantized part = unit.quantize();
    exchange_packet(phase.packets + i * kUnitPackets + lane,
                    make_uint4(part.low, part.high, __float_as_uint(part.scale),
                               static_cast<uint32_t>(part.sum) << 1 | bit));
    if (args.in.gain) {
      const uint64_t sum = __double_as_longlong(unit.squares());
      if (lane == 0) {
        exchange_packet(
            phase.packets + args.units * kUnitPackets + i,
            make_uint4(static_cast<uint32_t>(sum), static_cast<uint32_t>(sum >> 32), 0, bit));
      }
    }
  }
}

// What all blocks have made together: thread i has packets i, i + 512, ... All loads are on their
// way before the first one is used.
__device__ __forceinline__ void read_shared_inputs(const StepPhase& phase, uint32_t epoch,
                                                   const InputImage& image, double* squares) {
  constexpr int kThreads = kStepWarps * 32, kAtOnce = 4;
  const MatvecArgs& args = phase.matvec;
  const auto thread = static_cast<int>(threadIdx.x);
  const int unit_bytes = image.unit_bytes(args.x_group);
  const int group_lanes = args.x_group / kLaneColumns, count = args.units * kUnitPackets;
  const uint32_t bit = tag_bit(phase.in[0], epoch);
  const auto missing = [&](const uint4& v) { return (v.w & 1) != bit; };
#pragma unroll 1
  for (int base = thread; base < count; base += kAtOnce * kThreads) {
    uint4 v[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      v[j] = exchanged_packet(phase.packets + min(base + j * kThreads, count - 1));
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int packet = min(base + j * kThreads, count - 1);
      while (missing(v[j]))
        v[j] = exchanged_packet(phase.packets + packet);
      std::byte* to = image.units + packet / kUnitPackets * unit_bytes;
      *reinterpret_cast<uint2*>(to + lane_byte(packet % 32)) = make_uint2(v[j].x, v[j].y);
      if (packet % group_lanes != 0) continue;
      const float scale = __uint_as_float(v[j].z);
      reinterpret_cast<float2*>(to + kUnitColumns)[packet % 32 / group_lanes] =
          make_float2(scale, static_cast<float>(static_cast<int>(v[j].w) >> 1) * scale);
    }
  }
  if (args.in.gain && thread < args.units) {
    uint4 v;
    do {
      v = exchanged_packet(phase.packets + count + thread);
    } while (missing(v));
    squares[thread] = __longlong_as_double(static_cast<int64_t>(v.x | uint64_t{v.y} << 32));
  }
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
