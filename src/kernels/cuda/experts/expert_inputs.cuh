// Lets the blocks of the experts' down product make its inputs themselves. These are function(gate)
// * up of the item's slots, rotated and quantized directly into the products' shared memory
// (gemv/gemv_inputs.cuh).
#pragma once

#include "kernels/cuda/experts/gate_clamp.h"
#include "kernels/cuda/gemv/gemv_inputs.cuh"
#include "kernels/cuda/rows/row_transform.cuh"

namespace walsh::cuda {

// Says where some k-tiles of a slot's input go.
struct SlotImage {
  const InputImage& image;
  int k_tile_bytes;  // It is InputImage::k_tile_bytes.
  int first_k_tile, count;
};

// Holds the sources, which are gate and up by slot (a row of `in`). The form's rotation segments
// must not exceed a k-tile.
struct SlotInputs {
  const InputView& in;
  const FormView& form;
  const GateClamp& clamp;
  int first_slot, slots;
};

__device__ __forceinline__ void load_slot(const SlotInputs& inputs, int64_t slot, int column,
                                          float (&v)[kLaneColumns]) {
  const InputView& in = inputs.in;
  if (!inputs.clamp.used) return load_input(in, slot, column, v);
  float up[kLaneColumns];
  load8(in.x + slot * in.ldx, column, in, v);
  load8(in.up + slot * in.ldx, column, in, up);
#pragma unroll
  for (int e = 0; e < kLaneColumns; ++e) {
    inputs.clamp.apply(v[e], up[e]);
    v[e] = column + e < in.width ? silu(v[e]) * up[e] : 0.0f;
  }
}

// Stores a lane's int8 values for vector n of a k-tile.
__device__ __forceinline__ void store_values(const InputImage& image, std::byte* k_tile, int n,
                                             int lane, const Quantized& part) {
  const int byte = lane_byte(lane), piece = byte / 16;
  if (image.doubled) {
    const uint2 low = doubled(part.low), high = doubled(part.high);
    *reinterpret_cast<uint4*>(k_tile + doubled_place(byte / kLaneColumns)) =
        make_uint4(low.x, low.y, high.x, high.y);
    return;
  }
  const int place = (piece / 8 * image.vectors + n) * 128 + (piece % 8 ^ (n & 1)) * 16 + byte % 16;
  *reinterpret_cast<uint2*>(k_tile + place) = make_uint2(part.low, part.high);
}

// Makes one k-tile of one slot's input with one warp.
__device__ __forceinline__ void make_slot_k_tile(const SlotInputs& inputs, const SlotImage& to,
                                                 int slot, int k_tile, int lane) {
  const FormView& form = inputs.form;
  const InputImage& image = to.image;
  const int row_k_tile = to.first_k_tile + k_tile;
  const int column = row_k_tile * kKTileColumns + lane * kLaneColumns;
  float v[kLaneColumns];
  load_slot(inputs, inputs.first_slot + slot, column, v);
  rotate_columns(form, row_k_tile, sign_bits(form, column), lane, v);
  GroupScale scale = group_scale(v, form.group, lane);
  std::byte* const values = image.k_tiles + k_tile * to.k_tile_bytes;
  auto* scales = reinterpret_cast<float2*>(values + image.q_bytes());
  const int group_lanes = form.group / kLaneColumns;
#pragma unroll 1
  for (int p = 0; p < form.planes; ++p) {
    const int n = slot * form.planes + p;
    const Quantized part = quantize_plane(v, scale, form.group, lane);
    store_values(image, values, n, lane, part);
    if (lane % group_lanes != 0) continue;
    scales[lane / group_lanes * image.scale_columns + n] = image.scale_pair(part.scale, part.sum);
  }
}

// Makes the inputs of all slots. All warps of a block call this, and must synchronize afterwards.
__device__ __forceinline__ void make_slot_inputs(const SlotInputs& inputs, const SlotImage& to,
                                                 int warp, int lane) {
  const InputImage& image = to.image;
#pragma unroll 1
  for (int i = warp; i < inputs.slots * to.count; i += image.warps) {
    const int slot = i / to.count;
    make_slot_k_tile(inputs, to, slot, i - slot * to.count, lane);
  }
  // Missing vectors get scales of zero.
  const int groups = kKTileColumns / inputs.form.group;
  const int none = image.scale_columns - image.vectors, each = groups * none;
#pragma unroll 1
  for (int i = warp * 32 + lane; i < to.count * each; i += image.warps * 32) {
    const int k_tile = i / each, group = i % each / none, n = image.vectors + i % none;
    std::byte* const values = image.k_tiles + k_tile * to.k_tile_bytes;
    reinterpret_cast<float2*>(values + image.q_bytes())[group * image.scale_columns + n] =
        make_float2(0, 0);
  }
}

}  // namespace walsh::cuda
