// The inputs of a product in shared memory, for all warps of a block: brought there from where they
// were prepared, or made there.
#pragma once

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/matvec.h"
#include "kernels/cuda/row_transform.cuh"

namespace walsh::cuda {

// By unit of 256 columns: q as [chunk][vector][128], whose 16-byte pieces are swapped in odd
// vectors (lanes of a read in banks of their own); then (scale, sum * scale) as [group][column].
struct InputImage {
  std::byte* units;
  int vectors, scale_columns;
  int warps;  // of the block

  __device__ int unit_bytes(int group) const {
    return vectors * kUnitColumns + scale_columns * (kUnitColumns / group) * 8;
  }
};

// The units of a slice, from prepared inputs.
__device__ __forceinline__ void load_inputs(const MatvecArgs& args, const InputImage& image,
                                            int slice, int warp, int lane) {
  const int begin = slice * args.slice_units;
  const int end = min(args.units, begin + args.slice_units);
  const int64_t cols = int64_t{args.units} * kUnitColumns;
  const int groups = kUnitColumns / args.x_group, unit_bytes = image.unit_bytes(args.x_group);
#pragma unroll 1
  for (int unit = begin + warp; unit < end; unit += image.warps) {
    const int8_t* q = args.q + unit * kUnitColumns;
    const uint32_t place = shared_address(image.units) + (unit - begin) * unit_bytes;
    for (int j = lane; j < args.vectors * 16; j += 32) {
      const int n = j / 16, piece = j % 16;
      copy_async(place + (piece / 8 * args.vectors + n) * 128 + (piece % 8 ^ (n & 1)) * 16,
                 q + n * cols + piece * 16);
    }
  }
  copy_commit();
#pragma unroll 1
  for (int unit = begin + warp; unit < end; unit += image.warps) {
    auto* scales = reinterpret_cast<float2*>(image.units + (unit - begin) * unit_bytes +
                                             args.vectors * kUnitColumns);
    for (int j = lane; j < groups * image.scale_columns; j += 32) {
      const int n = j % image.scale_columns;
      const int64_t index = (int64_t{n} * args.units + unit) * groups + j / image.scale_columns;
      float2 v = make_float2(0, 0);
      if (n < args.vectors) {
        v.x = args.x_scales[index];
        v.y = static_cast<float>(args.x_sums[index]) * v.x;
      }
      scales[j] = v;
    }
  }
  copy_wait<0>();
  __syncthreads();
}

// The blocks of a cluster need the same input: each prepares every `size`-th unit for all. A unit
// is one warp's.
struct UnitShare {
  int first, step;  // units of a warp
  int blocks;       // of the cluster

  __device__ UnitShare(int cluster, int warps, int warp)
      : first((cluster > 1 ? cluster_rank() : 0) + cluster * warp),
        step(cluster * warps),
        blocks(cluster) {}
};

__device__ __forceinline__ void sync_blocks(int blocks) {
  if (blocks > 1) {
    cluster_arrive();
    cluster_wait();
  } else {
    __syncthreads();
  }
}

// Rotates and quantizes a unit. Signs: a bit per column of the lane.
__device__ __forceinline__ void finish_unit(const FormView& form, const InputImage& image, int unit,
                                            int blocks, uint32_t signs, int lane,
                                            float (&v)[kLaneColumns]) {
  rotate_columns(form, unit, signs, lane, v);
  GroupScale s = group_scale(v, form.group, lane);
  const Quantized part = quantize_plane(v, s, form.group, lane);
  const uint32_t place = shared_address(image.units) + unit * image.unit_bytes(form.group);
  const uint2 q = make_uint2(part.low, part.high);
  const uint2 scale = make_uint2(__float_as_uint(part.scale),
                                 __float_as_uint(static_cast<float>(part.sum) * part.scale));
  const uint32_t q_place = place + lane_byte(lane);
  const uint32_t scale_place = place + kUnitColumns + lane * kLaneColumns / form.group * 8;
  const bool first = lane % (form.group / kLaneColumns) == 0;
#pragma unroll 1
  for (int b = 0; b < blocks; ++b) {
    cluster_store(cluster_address(q_place, b), q);
    if (first) cluster_store(cluster_address(scale_place, b), scale);
  }
}

// All units of one input from its source. What does not come from the kernel before is made
// ready before waiting for it.
__device__ __forceinline__ void prepare_inputs(const MatvecArgs& args, const InputImage& image,
                                               int warp, int lane) {
  __shared__ double squares[kFusedUnits];
  const InputView& in = args.in;
  const UnitShare share(args.cluster, image.warps, warp);
  const auto column_of = [&](int unit) { return unit * kUnitColumns + lane * kLaneColumns; };
  if (share.blocks > 1) cluster_arrive_relaxed();
  float gain[kLaneColumns];
  if (in.gain) load8_whole(in.gain, column_of(share.first), in, gain);
  uint32_t signs = sign_bits(args.form, column_of(share.first));
  if (share.blocks > 1) cluster_wait();  // all blocks of the cluster are there
  wait_previous_kernel();
  float v[kLaneColumns];
  load_input<true>(in, 0, column_of(share.first), v);
  float inverse = 0;
  if (in.gain) {
    for (int unit = share.first; unit < args.units; unit += share.step) {
      if (unit != share.first) load_input<true>(in, 0, column_of(unit), v);
      const double sum = unit_squares(v);
      if (lane < share.blocks) {
        const uint64_t bits = __double_as_longlong(sum);
        cluster_store(cluster_address(shared_address(squares + unit), lane),
                      make_uint2(static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)));
      }
    }
    sync_blocks(share.blocks);
    double sum = 0;
    for (int unit = lane % kShares; unit < args.units; unit += kShares)
      sum += squares[unit];
    inverse = inverse_rms(in, sum);
    if (share.first + share.step < args.units) load_input<true>(in, 0, column_of(share.first), v);
  }
#pragma unroll 1
  for (int unit = share.first; unit < args.units; unit += share.step) {
    if (unit != share.first) {
      load_input<true>(in, 0, column_of(unit), v);
      if (in.gain) load8_whole(in.gain, column_of(unit), in, gain);
      signs = sign_bits(args.form, column_of(unit));
    }
    if (in.gain) apply_norm(gain, inverse, v);
    finish_unit(args.form, image, unit, share.blocks, signs, lane, v);
  }
  sync_blocks(share.blocks);
}

}  // namespace walsh::cuda
