// The product kernel of decoding (matvec.h).
#pragma once

#include <cuda_fp16.h>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/code_decoder.cuh"
#include "kernels/cuda/matvec.h"
#include "kernels/cuda/row_transform.cuh"

namespace walsh::cuda {

// An accumulator starts at 1.5 * 2^23 as a float's bits: a sum below 2^22 then is a float, too.
inline constexpr int kMagic = 0x4B400000;
inline constexpr float kMagicFloat = 12582912.0f;

__device__ __forceinline__ float magic_to_float(int sum) {
  return __int_as_float(sum) - kMagicFloat;
}

template <int Bits, int Flush, int Tiles8, bool Fused>
struct Matvec {
  static constexpr MatvecMemory kMemory = matvec_memory(Bits, Flush, Tiles8, kLargeShared);
  static constexpr int kStages = kMemory.stages;
  static constexpr int kVectors = Bits;       // 16-byte vectors of a lane and unit
  static constexpr int kScales = Bits * 512;  // where a stage's scales begin
  static constexpr int kOffsets = kScales + (Flush == 32 ? 256 : 64);
  static constexpr int kNTiles = Tiles8 == 0 ? 1 : Tiles8;
  static constexpr int kScaleColumns = Tiles8 == 0 ? 1 : 8 * Tiles8;  // float2 per input scale
  static constexpr int kSumTokens = Tiles8 == 0 ? 1 : Tiles8 == 1 ? 8 : 16;
  static constexpr int kSumStride = Tiles8 == 0 ? 16 : 20;  // 20: lanes of a store in own banks

  const MatvecArgs& args;
  const int lane, warp;
  const int tile_begin, tile_end;
  const uint32_t ring;      // of this warp
  float* const sums;        // [tile of the round][warp][token][row]
  std::byte* const inputs;  // [unit]: q, then the scales
  LevelTable table;

  // Where the next unit is fetched from.
  int fetch_tile, fetch_slice = 0, fetch_left;  // units that are left in the tile
  uint32_t fetch_slot;
  const uint4* fetch_codes;
  const std::byte* fetch_side;  // of this lane's vector of scales or offsets
  int side_place;               // in the stage, < 0: this lane has none

  __device__ Matvec(const MatvecArgs& a, std::byte* shared)
      : args(a),
        lane(static_cast<int>(threadIdx.x % 32)),
        warp(static_cast<int>(threadIdx.x / 32)),
        tile_begin(static_cast<int>(int64_t{a.tiles} * blockIdx.x / gridDim.x)),
        tile_end(static_cast<int>(int64_t{a.tiles} * (blockIdx.x + 1) / gridDim.x)),
        ring(shared_address(shared) + warp * kStages * kMemory.stage_bytes),
        sums(reinterpret_cast<float*>(shared + kMemory.ring_bytes())),
        inputs(shared + kMemory.ring_bytes() + kMemory.sum_bytes) {
    // The shuffle keeps the table out of uniform registers, which permutes cannot read.
#pragma unroll
    for (int i = 0; i < 4; ++i)
      table.words[i] = __shfl_sync(~0u, a.table.words[i], 0);
    const bool scale = lane < a.scale_vectors;
    const bool offset = !scale && lane < a.scale_vectors + a.offset_vectors;
    side_place = scale    ? kScales + lane * 16
                 : offset ? kOffsets + (lane - a.scale_vectors) * 16
                          : -1;
    fetch_slot = ring;
    fetch_tile = tile_begin;
    seek();
  }

  __device__ const TileSet& set_of(int tile) const {
    int s = 0;
    if (tile >= args.set[1].first_tile) s = 1;
    if (tile >= args.set[2].first_tile) s = 2;
    return args.set[s];
  }

  // This warp's units of a slice.
  __device__ int units_of(int slice) const {
    const int begin = slice * args.slice_units;
    const int count = min(args.units - begin, args.slice_units);
    return count > warp ? (count - warp + kBlockWarps - 1) / kBlockWarps : 0;
  }

  // Points at the first unit of fetch_tile in fetch_slice.
  __device__ void seek() {
    fetch_left = units_of(fetch_slice);
    if (fetch_left == 0) return;
    const TileSet& set = set_of(fetch_tile);
    const int64_t tile = fetch_tile - set.first_tile;
    const int64_t unit = int64_t{fetch_slice} * args.slice_units + warp;
    fetch_codes = set.codes + (tile * args.units + unit) * (kVectors * 32) + lane;
    if (side_place < 0) return;
    if (lane < args.scale_vectors) {
      fetch_side = set.scales + tile * args.scale_tile + unit * args.scale_step + lane * 16;
    } else {
      fetch_side = set.offsets + tile * args.offset_tile + unit * args.offset_step +
                   (lane - args.scale_vectors) * 16;
    }
  }

  __device__ __forceinline__ void next_tile() {
    if (++fetch_tile == tile_end) {
      fetch_tile = tile_begin;
      ++fetch_slice;
    }
    seek();
  }

  // Asks for the next unit and moves on: through the slice, the tiles, the slices.
  __device__ __forceinline__ void fetch() {
    if (fetch_left > 0) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
        copy_async(fetch_slot + v * 512 + lane * 16, fetch_codes + v * 32);
      if (side_place >= 0) {
        copy_async(fetch_slot + side_place, fetch_side);
        fetch_side +=
            kBlockWarps * (lane < args.scale_vectors ? args.scale_step : args.offset_step);
      }
      fetch_codes += kBlockWarps * kVectors * 32;
      fetch_slot += kMemory.stage_bytes;
      if (fetch_slot == ring + kStages * kMemory.stage_bytes) fetch_slot = ring;
      if (--fetch_left == 0) next_tile();
    }
    copy_commit();
  }

  __device__ int unit_bytes() const {
    return args.vectors * kUnitColumns + kScaleColumns * (kUnitColumns / args.x_group) * 8;
  }

  // This warp's units of a slice, from prepared inputs.
  __device__ void load_inputs(int slice) {
    const int begin = slice * args.slice_units;
    const int64_t cols = int64_t{args.units} * kUnitColumns;
    const int groups = kUnitColumns / args.x_group;
    const int end = min(args.units, begin + args.slice_units);
    for (int unit = begin + warp; unit < end; unit += kBlockWarps) {
      std::byte* place = inputs + (unit - begin) * unit_bytes();
      const int8_t* q = args.q + unit * kUnitColumns;
#pragma unroll 4
      for (int j = lane; j < args.vectors * 16; j += 32) {
        const int n = j / 16, piece = j % 16;
        const uint4 v = *reinterpret_cast<const uint4*>(q + n * cols + piece * 16);
        const int byte = (piece / 8 * args.vectors + n) * 128 + (piece % 8 ^ (n & 1)) * 16;
        *reinterpret_cast<uint4*>(place + byte) = v;
      }
      auto* scales = reinterpret_cast<float2*>(place + args.vectors * kUnitColumns);
      for (int j = lane; j < groups * kScaleColumns; j += 32) {
        const int n = j % kScaleColumns;
        const int64_t index = (int64_t{n} * args.units + unit) * groups + j / kScaleColumns;
        float2 v = make_float2(0, 0);
        if (n < args.vectors) {
          v.x = args.x_scales[index];
          v.y = static_cast<float>(args.x_sums[index]) * v.x;
        }
        scales[j] = v;
      }
    }
    __syncwarp();
  }

  // This warp's units of all slices, from the source of the input. Loops are not unrolled further
  // than latencies need: long code waits for the instruction cache.
  __device__ __forceinline__ void prepare_inputs() {
    __shared__ double scratch[kBlockWarps];
    constexpr int kBatch = 2;
    const InputView& in = args.in;
    const auto column_of = [&](int unit) { return unit * kUnitColumns + lane * kLaneColumns; };
    float inverse = 0;
    if (in.gain) {  // the weights of the norm do not come from the previous kernel
      for (int unit = warp; column_of(unit) < in.width; unit += kBlockWarps)
        prefetch(in.gain + column_of(unit));
    }
    wait_previous_kernel();
    if (in.gain) {
      double sum = 0;
#pragma unroll 1
      for (int first = warp; first < args.units; first += 4 * kBlockWarps) {
        float v[4][kLaneColumns];
#pragma unroll
        for (int u = 0; u < 4; ++u)
          load_input<true>(in, 0, column_of(first + u * kBlockWarps), v[u]);
#pragma unroll
        for (int u = 0; u < 4; ++u)
          sum += squares(v[u]);
      }
      inverse = finish_rms(in, sum, warp, lane, scratch);
    }
#pragma unroll 1
    for (int first = warp; first < args.units; first += kBatch * kBlockWarps) {
      float v[kBatch][kLaneColumns];
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        const int column = column_of(first + u * kBlockWarps);
        load_input<true>(in, 0, column, v[u]);
        if (in.gain) {
          float gain[kLaneColumns];
          load8_whole(in.gain, column, in, gain);
          apply_norm(gain, inverse, v[u]);
        }
      }
#pragma unroll
      for (int u = 0; u < kBatch; ++u)
        finish_unit(first + u * kBlockWarps, v[u]);
    }
    __syncwarp();
  }

  // Rotates and quantizes; a unit beyond the row is computed and not stored, so that two units are
  // one piece of straight code.
  __device__ __forceinline__ void finish_unit(int unit, float (&v)[kLaneColumns]) {
    const FormView& form = args.form;
    const int column = unit * kUnitColumns + lane * kLaneColumns;
    if (form.block) rotate_unit(segment_size(form, column), sign_bits(form, column), lane, v);
    GroupScale s = group_scale(v, form.group);
    const Quantized part = quantize_plane(v, s, form.group);
    if (unit >= args.units) return;
    std::byte* place = inputs + unit * unit_bytes();
    *reinterpret_cast<uint2*>(place + lane_byte(lane)) = make_uint2(part.low, part.high);
    if (lane % (form.group / kLaneColumns) != 0) return;
    auto* scales = reinterpret_cast<float2*>(place + kUnitColumns);
    scales[lane * kLaneColumns / form.group] =
        make_float2(part.scale, static_cast<float>(part.sum) * part.scale);
  }

  // y += scale * x_scale * sums (+ offset * x_scale * sum of x), one block of equal scales.
  // `slot` points at the lane's scale of the first row, `x_scales` at its pair of vectors.
  __device__ __forceinline__ void flush(uint32_t slot, uint32_t x_scales, int block,
                                        const int (&sum)[kNTiles][4],
                                        float (&y)[kNTiles][4]) const {
    const float2 scale = shared_halves(slot + kScales + (block >> args.scale_shift) * 32);
    const float s0 = scale.x * args.unit, s1 = scale.y * args.unit;
    const int group = Flush == 128 ? block / 4 : block >> args.x_shift;
    // The offset belongs to a whole group of inputs.
    const bool offsets =
        args.offset_vectors > 0 && (Flush == 128 || ((block + 1) & ((1 << args.x_shift) - 1)) == 0);
    float2 offset = make_float2(0, 0);
    if (offsets) offset = shared_halves(slot + kOffsets);
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) {
      if constexpr (Tiles8 == 0) {  // all columns are the same vector
        const float2 x = shared_float2(x_scales + group * 8);
        y[n][0] = fmaf(magic_to_float(sum[n][0]), s0 * x.x, y[n][0]);
        y[n][2] = fmaf(magic_to_float(sum[n][2]), s1 * x.x, y[n][2]);
        if (offsets) {
          y[n][0] = fmaf(offset.x, x.y, y[n][0]);
          y[n][2] = fmaf(offset.y, x.y, y[n][2]);
        }
      } else {
        const float4 x = shared_float4(x_scales + group * kScaleColumns * 8 + n * 64);
        y[n][0] = fmaf(magic_to_float(sum[n][0]), s0 * x.x, y[n][0]);
        y[n][1] = fmaf(magic_to_float(sum[n][1]), s0 * x.z, y[n][1]);
        y[n][2] = fmaf(magic_to_float(sum[n][2]), s1 * x.x, y[n][2]);
        y[n][3] = fmaf(magic_to_float(sum[n][3]), s1 * x.z, y[n][3]);
        if (offsets) {
          y[n][0] = fmaf(offset.x, x.y, y[n][0]);
          y[n][1] = fmaf(offset.x, x.w, y[n][1]);
          y[n][2] = fmaf(offset.y, x.y, y[n][2]);
          y[n][3] = fmaf(offset.y, x.w, y[n][3]);
        }
      }
    }
  }

  // Where a lane reads operand b of a chunk from, relative to the unit's inputs: its vector of each
  // n-tile; the other 16 bytes are at the place xor 16.
  struct Places {
    uint32_t b[kNTiles];
    uint32_t chunk;   // from chunk to chunk
    uint32_t scales;  // of the inputs
  };

  __device__ Places places() const {
    const int g = lane / 4, t = lane % 4;
    const int vectors = Tiles8 == 0 ? 1 : args.vectors;
    Places p;
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) {
      const int vector = Tiles8 == 0 ? 0 : min(n * 8 + g, vectors - 1);
      p.b[n] = static_cast<uint32_t>(vector * 128 + t * 32 + (vector & 1) * 16);
    }
    p.chunk = static_cast<uint32_t>(vectors * 128);
    p.scales = static_cast<uint32_t>(vectors * kUnitColumns + (Tiles8 == 0 ? 0 : t * 16));
    return p;
  }

  __device__ __forceinline__ void multiply_unit(uint32_t slot, uint32_t x, const Places& p,
                                                float (&y)[kNTiles][4]) const {
    using Decoder = CodeDecoder<Bits>;
    const int zero[4] = {kMagic, kMagic, kMagic, kMagic};
    uint32_t words[kVectors * 4];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const uint4 w = shared_words(slot + v * 512 + lane * 16);
      words[4 * v] = w.x, words[4 * v + 1] = w.y, words[4 * v + 2] = w.z, words[4 * v + 3] = w.w;
    }
    const uint32_t scales = slot + (lane / 4) * 4;
#pragma unroll
    for (int chunk = 0; chunk < 2; ++chunk) {
      uint32_t b[kNTiles][8];
#pragma unroll
      for (int n = 0; n < kNTiles; ++n) {
        const uint32_t place = x + chunk * (Tiles8 == 0 ? 128 : p.chunk);
        const uint4 low = shared_words(place + p.b[n]), high = shared_words(place + (p.b[n] ^ 16));
        b[n][0] = low.x, b[n][1] = low.y, b[n][2] = low.z, b[n][3] = low.w;
        b[n][4] = high.x, b[n][5] = high.y, b[n][6] = high.z, b[n][7] = high.w;
      }
      const uint32_t* upper = words + chunk * 2 * Decoder::kWords;
      const uint32_t* lower = upper + Decoder::kWords;
      int sum[kNTiles][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t a[4];
        Decoder::decode(upper, i, table, a[0], a[2]);
        Decoder::decode(lower, i, table, a[1], a[3]);
#pragma unroll
        for (int n = 0; n < kNTiles; ++n) {
          if (Flush == 32 || i == 0) {
            mma_int8(sum[n], a, b[n][2 * i], b[n][2 * i + 1], zero);
          } else {
            mma_int8(sum[n], a, b[n][2 * i], b[n][2 * i + 1], sum[n]);
          }
        }
        if constexpr (Flush == 32) flush(scales, x + p.scales, chunk * 4 + i, sum, y);
      }
      if constexpr (Flush == 128) flush(scales, x + p.scales, chunk * 4, sum, y);
    }
  }

  // This warp's sums of a tile.
  __device__ __forceinline__ void store_sums(int tile, const float (&y)[kNTiles][4]) const {
    const int g = lane / 4, t = lane % 4;
    float* out = sums + (tile * kBlockWarps + warp) * kSumTokens * kSumStride + g;
    if constexpr (Tiles8 == 0) {
      if (t == 0) {
        out[0] = y[0][0];
        out[8] = y[0][2];
      }
    } else {
#pragma unroll
      for (int n = 0; n < kNTiles; ++n) {
        if (args.planes == 1) {
          if (Tiles8 > 2) continue;  // 16 tokens at most
          float* column = out + (n * 8 + 2 * t) * kSumStride;
          column[0] = y[n][0];
          column[kSumStride] = y[n][1];
          column[8] = y[n][2];
          column[kSumStride + 8] = y[n][3];
        } else {
          float* column = out + (n * 4 + t) * kSumStride;
          column[0] = y[n][0] + y[n][1];
          column[8] = y[n][2] + y[n][3];
        }
      }
    }
  }

  // Adds the warps' sums of `count` tiles in order and writes them: 16 threads a tile and token.
  __device__ __forceinline__ void write_round(int first, int count, int slice) const {
    const int row = static_cast<int>(threadIdx.x % kTileRows);
    const int part = static_cast<int>(threadIdx.x / kTileRows);  // < 16
    if constexpr (Tiles8 == 0) {
      if (part < count) write_sum(first, part, 0, row, slice);
    } else {
      if (part >= args.m) return;
      for (int tile = 0; tile < count; ++tile)
        write_sum(first, tile, part, row, slice);
    }
  }

  __device__ __forceinline__ void write_sum(int first, int tile, int token, int row,
                                            int slice) const {
    const float* in = sums + (tile * kBlockWarps * kSumTokens + token) * kSumStride + row;
    float total = in[0];
#pragma unroll
    for (int w = 1; w < kBlockWarps; ++w)
      total += in[w * kSumTokens * kSumStride];
    const TileSet& set = set_of(first + tile);
    const int64_t out_row = int64_t{first + tile - set.first_tile} * kTileRows + row;
    if (out_row >= set.rows) return;
    float& y = set.y[token * set.ldy + out_row];
    if (slice == 0 && set.bias) total += set.bias[out_row];
    y = slice > 0 || set.add ? y + total : total;
  }

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int s = 0; s < kStages; ++s)
      fetch();
    if constexpr (Fused) {
      prepare_inputs();
    } else {
      wait_previous_kernel();
    }
    const Places p = places();
    const auto unit_step = static_cast<uint32_t>(unit_bytes() * kBlockWarps);
    const uint32_t first_input =
        shared_address(inputs) + static_cast<uint32_t>(warp * unit_bytes());
    uint32_t slot = ring;
    for (int slice = 0; slice * args.slice_units < args.units; ++slice) {
      if constexpr (!Fused) load_inputs(slice);
      const int mine = units_of(slice);
      const uint32_t slice_input =
          Fused ? first_input + static_cast<uint32_t>(slice * args.slice_units * unit_bytes())
                : first_input;
      for (int first = tile_begin; first < tile_end; first += kMemory.sum_tiles) {
        const int count = min(kMemory.sum_tiles, tile_end - first);
        for (int tile = 0; tile < count; ++tile) {
          float y[kNTiles][4] = {};
          uint32_t x = slice_input;
          for (int i = 0; i < mine; ++i, x += unit_step) {
            copy_wait<kStages - 1>();
            __syncwarp();
            multiply_unit(slot, x, p, y);
            __syncwarp();
            fetch();
            slot += kMemory.stage_bytes;
            if (slot == ring + kStages * kMemory.stage_bytes) slot = ring;
          }
          store_sums(tile, y);
        }
        __syncthreads();
        write_round(first, count, slice);
        __syncthreads();
      }
    }
  }
};

// Registers for two blocks per multiprocessor: that of the next kernel fetches its first weights
// while this one works.
template <int Bits, int Flush, int Tiles8, bool Fused>
__global__ void __launch_bounds__(kBlockWarps * 32, 2)
    matvec_kernel_of(const __grid_constant__ MatvecArgs args) {
  extern __shared__ __align__(16) std::byte shared[];
  allow_next_kernel();
  Matvec<Bits, Flush, Tiles8, Fused> matvec(args, shared);
  matvec.run();
}

template <int Bits, int Flush>
MatvecKernel select_kernel(const MatvecKind& kind) {
  if (kind.fused) return matvec_kernel_of<Bits, Flush, 0, true>;
  switch (kind.tiles8) {
    case 0:
      return matvec_kernel_of<Bits, Flush, 0, false>;
    case 1:
      return matvec_kernel_of<Bits, Flush, 1, false>;
    case 2:
      return matvec_kernel_of<Bits, Flush, 2, false>;
    default:
      return matvec_kernel_of<Bits, Flush, 4, false>;
  }
}

}  // namespace walsh::cuda
