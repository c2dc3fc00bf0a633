// The product kernel of decoding (matvec.h).
#pragma once

#include <cuda_fp16.h>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/code_decoder.cuh"
#include "kernels/cuda/matvec.h"
#include "kernels/cuda/matvec_inputs.cuh"

namespace walsh::cuda {

// a / b of small numbers.
__device__ __forceinline__ int divide(int a, int b) {
  const int q = __float2int_rz(__fdividef(static_cast<float>(a), static_cast<float>(b)));
  const int rest = a - q * b;
  return rest < 0 ? q - 1 : rest >= b ? q + 1 : q;
}

template <int Bits, int Flush, int Tiles8, bool Fused>
struct Matvec {
  static constexpr MatvecMemory kMemory = matvec_memory(Bits, Flush, Tiles8, kLargeShared);
  static constexpr int kWarps = kMemory.warps;
  static constexpr int kStages = kMemory.stages;
  static constexpr int kVectors = Bits;       // 16-byte vectors of a lane and unit
  static constexpr int kScales = Bits * 512;  // where a stage's scales begin
  static constexpr int kOffsets = kScales + (Flush == 32 ? 256 : 64);
  static constexpr int kNTiles = Tiles8 == 0 ? 1 : Tiles8;
  static constexpr int kScaleColumns = Tiles8 == 0 ? 1 : 8 * Tiles8;  // float2 per input scale
  static constexpr int kSumTokens = Tiles8 == 0 ? 1 : Tiles8 == 1 ? 8 : 16;
  static constexpr int kScaleWords = Flush == 32 ? 8 : 2;  // of a lane and unit

  // A round of a slice: its tiles, its units per tile, and this warp's run of them.
  struct Round {
    int first, tiles, units;
    int begin, end;
  };

  const MatvecArgs& args;
  const int lane, warp;
  const int tile_begin, tile_count, rounds;
  const uint32_t ring;      // of this warp
  float* const sums;        // [piece][token][row]
  std::byte* const inputs;  // [unit]: q, then the scales
  LevelTable table;
  int second_scale;  // from the scale of a unit's first chunk to that of its second

  // What is fetched next: `fetch_left` units of a piece, then units `fetch_at` to `fetch_end` of
  // the round, then the next round (rounds of all slices, counted on).
  int fetch_step = -1, fetch_at = 0, fetch_end = 0, fetch_left = 0;
  const uint4* fetch_codes;
  const std::byte* fetch_side;  // of this lane's vector of scales or offsets
  int side_place;               // in the stage, < 0: this lane has none
  int side_step;

  __device__ Matvec(const MatvecArgs& a, std::byte* shared)
      : args(a),
        lane(static_cast<int>(threadIdx.x % 32)),
        warp(static_cast<int>(threadIdx.x / 32)),
        tile_begin(static_cast<int>(blockIdx.x) * a.tiles_per_block +
                   min(static_cast<int>(blockIdx.x), a.blocks_with_more)),
        tile_count(a.tiles_per_block + (static_cast<int>(blockIdx.x) < a.blocks_with_more)),
        rounds((tile_count + kRoundTiles - 1) / kRoundTiles),
        ring(shared_address(shared) + warp * kStages * kMemory.stage_bytes),
        sums(reinterpret_cast<float*>(shared + kMemory.ring_bytes())),
        inputs(shared + kMemory.ring_bytes() + kMemory.sum_bytes) {
    // The shuffle keeps the table out of uniform registers, which permutes cannot read.
#pragma unroll
    for (int i = 0; i < 4; ++i)
      table.words[i] = __shfl_sync(~0u, a.table.words[i], 0);
    second_scale = (4 >> a.scale_shift) * 32;
    const bool scale = lane < a.scale_vectors;
    const bool offset = !scale && lane < a.scale_vectors + a.offset_vectors;
    side_place = scale    ? kScales + lane * 16
                 : offset ? kOffsets + (lane - a.scale_vectors) * 16
                          : -1;
    side_step = scale ? a.scale_step : a.offset_step;
    next_piece();
  }

  __device__ const TileSet& set_of(int tile) const {
    int s = 0;
    if (tile >= args.set[1].first_tile) s = 1;
    if (tile >= args.set[2].first_tile) s = 2;
    return args.set[s];
  }

  __device__ Round round_of(int slice, int round) const {
    Round r;
    const int first = round * kRoundTiles;
    r.first = tile_begin + first;
    r.tiles = min(tile_count - first, kRoundTiles);
    r.units = min(args.units - slice * args.slice_units, args.slice_units);
    const int total = r.tiles * r.units;
    r.begin = total < kWarps ? min(warp, total) : total * warp / kWarps;
    r.end = total < kWarps ? min(warp + 1, total) : total * (warp + 1) / kWarps;
    return r;
  }

  // Goes on to the next piece of a run, the units of one tile, or to the next run.
  __device__ __forceinline__ void next_piece() {
    while (fetch_at == fetch_end) {
      ++fetch_step;
      const int slice = divide(fetch_step, rounds);
      if (slice * args.slice_units >= args.units) return;
      const Round r = round_of(slice, fetch_step - slice * rounds);
      fetch_at = r.begin;
      fetch_end = r.end;
    }
    const int slice = divide(fetch_step, rounds);
    const int units = min(args.units - slice * args.slice_units, args.slice_units);
    const int in_round = divide(fetch_at, units), first_unit = fetch_at - in_round * units;
    fetch_left = min(units - first_unit, fetch_end - fetch_at);
    fetch_at += fetch_left;
    const int fetch_tile = tile_begin + (fetch_step - slice * rounds) * kRoundTiles + in_round;
    const TileSet& set = set_of(fetch_tile);
    const int64_t tile = fetch_tile - set.first_tile;
    const int64_t unit = slice * args.slice_units + first_unit;
    fetch_codes = set.codes + (tile * args.units + unit) * (kVectors * 32) + lane;
    fetch_side = lane < args.scale_vectors
                     ? set.scales + tile * args.scale_tile + unit * args.scale_step + lane * 16
                     : set.offsets + tile * args.offset_tile + unit * args.offset_step +
                           (lane - args.scale_vectors) * 16;
  }

  // Asks for the next unit.
  __device__ __forceinline__ void fetch(uint32_t slot) {
    if (fetch_left > 0) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
        copy_async(slot + v * 512 + lane * 16, fetch_codes + v * 32);
      if (side_place >= 0) copy_async(slot + side_place, fetch_side);
      fetch_side += side_step;
      fetch_codes += kVectors * 32;
      if (--fetch_left == 0) next_piece();
    }
    copy_commit();
  }

  // y += scale * x_scale * sums (+ offset * x_scale * sum of x), one block of equal scales.
  // `x_scales` points at the lane's pair of vectors.
  __device__ __forceinline__ void flush(uint32_t scale_word, uint32_t offset_word,
                                        uint32_t x_scales, int block, const int (&sum)[kNTiles][4],
                                        float (&y)[kNTiles][4]) const {
    const float2 scale = halves(scale_word);
    const float s0 = scale.x * args.unit, s1 = scale.y * args.unit;
    const int group = Flush == 128 ? block / 4 : block >> args.x_shift;
    // The offset belongs to a whole group of inputs.
    const bool offsets =
        args.offset_vectors > 0 && (Flush == 128 || ((block + 1) & ((1 << args.x_shift) - 1)) == 0);
    const float2 offset = halves(offset_word);
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) {
      if constexpr (Tiles8 == 0) {  // all columns are the same vector
        const float2 x = shared_float2(x_scales + group * 8);
        y[n][0] = fmaf(static_cast<float>(sum[n][0]), s0 * x.x, y[n][0]);
        y[n][2] = fmaf(static_cast<float>(sum[n][2]), s1 * x.x, y[n][2]);
        if (offsets) {
          y[n][0] = fmaf(offset.x, x.y, y[n][0]);
          y[n][2] = fmaf(offset.y, x.y, y[n][2]);
        }
      } else {
        const float4 x = shared_float4(x_scales + group * kScaleColumns * 8 + n * 64);
        y[n][0] = fmaf(static_cast<float>(sum[n][0]), s0 * x.x, y[n][0]);
        y[n][1] = fmaf(static_cast<float>(sum[n][1]), s0 * x.z, y[n][1]);
        y[n][2] = fmaf(static_cast<float>(sum[n][2]), s1 * x.x, y[n][2]);
        y[n][3] = fmaf(static_cast<float>(sum[n][3]), s1 * x.z, y[n][3]);
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

  // The unit in `slot`, which is filled again as soon as it is read.
  __device__ __forceinline__ void multiply_unit(uint32_t slot, uint32_t x, const Places& p,
                                                float (&y)[kNTiles][4]) {
    using Decoder = CodeDecoder<Bits>;
    const int zero[4] = {};
    uint32_t words[kVectors * 4], scales[kScaleWords];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const uint4 w = shared_words(slot + v * 512 + lane * 16);
      words[4 * v] = w.x, words[4 * v + 1] = w.y, words[4 * v + 2] = w.z, words[4 * v + 3] = w.w;
    }
    const uint32_t side = slot + (lane / 4) * 4;
#pragma unroll
    for (int s = 0; s < kScaleWords; ++s)
      scales[s] = shared_word(side + kScales +
                              (Flush == 128 ? s * second_scale : (s >> args.scale_shift) * 32));
    uint32_t offset = 0;
    if (args.offset_vectors > 0) offset = shared_word(side + kOffsets);
    __syncwarp();
    fetch(slot);
#pragma unroll
    for (int chunk = 0; chunk < 2; ++chunk) {
      const uint32_t* upper = words + chunk * 2 * Decoder::kWords;
      const uint32_t* lower = upper + Decoder::kWords;
      const uint32_t place = x + chunk * (Tiles8 == 0 ? 128 : p.chunk);
      int sum[kNTiles][4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t b[kNTiles][4];
#pragma unroll
        for (int n = 0; n < kNTiles; ++n) {
          const uint4 w = shared_words(place + (p.b[n] ^ (half * 16)));
          b[n][0] = w.x, b[n][1] = w.y, b[n][2] = w.z, b[n][3] = w.w;
        }
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int i = half * 2 + j;
          uint32_t a[4];
          Decoder::decode(upper, i, table, a[0], a[2]);
          Decoder::decode(lower, i, table, a[1], a[3]);
#pragma unroll
          for (int n = 0; n < kNTiles; ++n) {
            if (Flush == 32 || i == 0) {
              mma_int8(sum[n], a, b[n][2 * j], b[n][2 * j + 1], zero);
            } else {
              mma_int8(sum[n], a, b[n][2 * j], b[n][2 * j + 1], sum[n]);
            }
          }
          if constexpr (Flush == 32)
            flush(scales[chunk * 4 + i], offset, x + p.scales, chunk * 4 + i, sum, y);
        }
      }
      if constexpr (Flush == 128) flush(scales[chunk], offset, x + p.scales, chunk * 4, sum, y);
    }
  }

  // The sums of a piece.
  __device__ __forceinline__ void store_sums(int piece, const float (&y)[kNTiles][4]) const {
    const int g = lane / 4, t = lane % 4;
    float* out = sums + piece * kSumTokens * kTileRows + g;
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
          float* column = out + (n * 8 + 2 * t) * kTileRows;
          column[0] = y[n][0];
          column[kTileRows] = y[n][1];
          column[8] = y[n][2];
          column[kTileRows + 8] = y[n][3];
        } else {
          float* column = out + (n * 4 + t) * kTileRows;
          column[0] = y[n][0] + y[n][1];
          column[8] = y[n][2] + y[n][3];
        }
      }
    }
  }

  // Adds the sums of the round's tiles in the order of their columns and writes them: 16 threads to
  // a tile and token. Places are found before the warps have come.
  __device__ __forceinline__ void write_round(const Round& r, int slice) const {
    const int row = static_cast<int>(threadIdx.x % kTileRows);
    const int tokens = Tiles8 == 0 ? 1 : args.m;
    const int total = r.tiles * r.units, runs = min(kWarps, total), count = r.tiles * tokens;
    const bool add_before = slice > 0;
    bool waiting = true;
#pragma unroll 1
    for (int base = 2 * warp; waiting || base < count; base += 2 * kWarps) {
      const int i = base + lane / kTileRows;
      const int tile = Tiles8 == 0 ? i : divide(i, tokens), token = i - tile * tokens;
      const int first = divide((tile * r.units + 1) * runs - 1, total);
      const int last = divide((tile + 1) * r.units * runs - 1, total);
      const float* in = sums + ((first + tile) * kSumTokens + token) * kTileRows + row;
      const TileSet& set = set_of(r.first + tile);
      const int64_t out_row = int64_t{r.first + tile - set.first_tile} * kTileRows + row;
      const bool inside = i < count && out_row < set.rows;
      const bool add = inside && (add_before || set.add);
      const bool has_bias = inside && !add_before && set.bias;
      float* y = set.y + token * set.ldy + out_row;
      float before = 0, bias = 0;
      if (add) before = *y;
      if (has_bias) bias = set.bias[out_row];
      if (waiting) __syncthreads();
      waiting = false;
      if (!inside) continue;
      float sum = *in;
      for (int w = first; w < last; ++w) {
        in += kSumTokens * kTileRows;
        sum += *in;
      }
      if (has_bias) sum += bias;
      *y = add ? before + sum : sum;
    }
  }

  // The first piece of this warp's run in a round.
  struct Start {
    Round r;
    int tile, unit;
  };

  __device__ __forceinline__ Start start_of(int slice, int round) const {
    Start s;
    s.r = round_of(slice, round);
    s.tile = divide(s.r.begin, s.r.units);
    s.unit = s.r.begin - s.tile * s.r.units;
    return s;
  }

  __device__ __forceinline__ void multiply_round(const Start& start, const Places& p,
                                                 uint32_t slice_input, uint32_t unit_step,
                                                 uint32_t& slot) {
    int tile = start.tile, unit = start.unit;
#pragma unroll 1
    for (int left = start.r.end - start.r.begin; left > 0; unit = 0, ++tile) {
      float y[kNTiles][4] = {};
      uint32_t x = slice_input + unit * unit_step;
      int count = min(start.r.units - unit, left);
      left -= count;
#pragma unroll 1
      for (; count > 0; --count, x += unit_step) {
        copy_wait<kStages - 1>();
        __syncwarp();
        multiply_unit(slot, x, p, y);
        slot += kMemory.stage_bytes;
        if (slot == ring + kStages * kMemory.stage_bytes) slot = ring;
      }
      store_sums(warp + tile, y);
    }
  }

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int s = 0; s < kStages; ++s)
      fetch(ring + s * kMemory.stage_bytes);
    const InputImage image{inputs, args.vectors, kScaleColumns, kWarps};
    const Places p = places();
    const auto unit_step = static_cast<uint32_t>(image.unit_bytes(args.x_group));
    uint32_t slice_input = shared_address(inputs), slot = ring;
    Start start = start_of(0, 0);
    if constexpr (Fused) {
      prepare_inputs(args, image, warp, lane);
    } else {
      wait_previous_kernel();
      load_inputs(args, image, 0, warp, lane);
    }
#pragma unroll 1
    for (int slice = 0, round = 0;;) {
      multiply_round(start, p, slice_input, unit_step, slot);
      write_round(start.r, slice);
      if (++round == rounds) {
        round = 0;
        if (++slice * args.slice_units >= args.units) return;
      }
      start = start_of(slice, round);
      __syncthreads();
      if (round > 0) continue;
      if constexpr (Fused) {
        slice_input += args.slice_units * unit_step;
      } else {
        load_inputs(args, image, slice, warp, lane);
      }
    }
  }
};

template <int Bits, int Flush, int Tiles8, bool Fused>
__device__ __forceinline__ void matvec(const MatvecArgs& args) {
  extern __shared__ __align__(16) std::byte shared[];
  allow_next_kernel();
  Matvec<Bits, Flush, Tiles8, Fused>(args, shared).run();
}

// Registers for two blocks per multiprocessor: that of the next kernel asks for its first weights
// while this one works.
template <int Bits, int Flush>
__global__ void __launch_bounds__(matvec_warps(Bits) * 32, 2)
    fused_matvec_kernel(const __grid_constant__ MatvecArgs args) {
  matvec<Bits, Flush, 0, true>(args);
}

// Registers for a block that prepares the next input beside it.
template <int Bits, int Flush, int Tiles8>
__global__ void __maxnreg__(Bits == 8 ? 128 : 96)
    matvec_kernel_of(const __grid_constant__ MatvecArgs args) {
  matvec<Bits, Flush, Tiles8, false>(args);
}

template <int Bits, int Flush>
MatvecKernel select_kernel(const MatvecKind& kind) {
  if constexpr (Bits != 8) {
    if (kind.fused) return fused_matvec_kernel<Bits, Flush>;
  }
  switch (kind.tiles8) {
    case 0:
      return matvec_kernel_of<Bits, Flush, 0>;
    case 1:
      return matvec_kernel_of<Bits, Flush, 1>;
    case 2:
      return matvec_kernel_of<Bits, Flush, 2>;
    default:
      return matvec_kernel_of<Bits, Flush, 4>;
  }
}

}  // namespace walsh::cuda
