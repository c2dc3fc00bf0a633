// The inputs of the experts' last product, made by its blocks: function(gate) * up of the item's
// slots, rotated and quantized, straight to where the products read them (gemv/gemv_inputs.cuh).
#pragma once

#include "kernels/cuda/experts/gate_clamp.h"
#include "kernels/cuda/rows/row_transform.cuh"

namespace walsh::cuda {

// Where the inputs of some k-tiles lie (InputImage).
struct SlotImage {
  unsigned char* k_tiles;
  int k_tile_bytes;
  int vectors, scale_columns;
  int first_k_tile, count;  // of the row
};

// What is made of which slots; a slot is a row of `in`. Segments of the form are shorter than a
// k-tile or as long.
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

// One k-tile of one slot, by a warp.
__device__ __forceinline__ void make_slot_k_tile(const SlotInputs& inputs, const SlotImage& image,
                                                 int slot, int k_tile, int lane) {
  const FormView& form = inputs.form;
  const int row_k_tile = image.first_k_tile + k_tile;
  const int column = row_k_tile * kKTileColumns + lane * kLaneColumns;
  float v[kLaneColumns];
  load_slot(inputs, inputs.first_slot + slot, column, v);
  rotate_columns(form, row_k_tile, sign_bits(form, column), lane, v);
  GroupScale scale = group_scale(v, form.group, lane);
  unsigned char* to = image.k_tiles + k_tile * image.k_tile_bytes;
  auto* scales = reinterpret_cast<float2*>(to + image.vectors * kKTileColumns);
  const int byte = lane_byte(lane), piece = byte / 16, group_lanes = form.group / kLaneColumns;
#pragma unroll 1
  for (int p = 0; p < form.planes; ++p) {
    const int n = slot * form.planes + p;
    const Quantized part = quantize_plane(v, scale, form.group, lane);
    const int place =
        (piece / 8 * image.vectors + n) * 128 + (piece % 8 ^ (n & 1)) * 16 + byte % 16;
    *reinterpret_cast<uint2*>(to + place) = make_uint2(part.low, part.high);
    if (lane % group_lanes != 0) continue;
    scales[lane / group_lanes * image.scale_columns + n] =
        make_float2(part.scale, static_cast<float>(part.sum) * part.scale);
  }
}

// By all `warps` warps of a block, which must meet behind it.
__device__ __forceinline__ void make_slot_inputs(const SlotInputs& inputs, const SlotImage& image,
                                                 int warps, int warp, int lane) {
#pragma unroll 1
  for (int i = warp; i < inputs.slots * image.count; i += warps) {
    const int slot = i / image.count;
    make_slot_k_tile(inputs, image, slot, i - slot * image.count, lane);
  }
  // Vectors that there are not have scales of zero.
  const int groups = kKTileColumns / inputs.form.group;
  const int none = image.scale_columns - image.vectors, each = groups * none;
#pragma unroll 1
  for (int i = warp * 32 + lane; i < image.count * each; i += warps * 32) {
    const int k_tile = i / each, group = i % each / none, n = image.vectors + i % none;
    unsigned char* to = image.k_tiles + k_tile * image.k_tile_bytes;
    reinterpret_cast<float2*>(to + image.vectors * kKTileColumns)[group * image.scale_columns + n] =
        make_float2(0, 0);
  }
}

}  // namespace walsh::cuda
