// Products of coded weights with 17 to 256 vectors on GPUs with wgmma.
//
// A block has Groups warp groups of 64 rows each and Part * Parts vectors. A warp reads the codes
// of its 16 rows through a ring of its own, makes operands of them in registers, once per block of
// vectors, and scales the integer sums of every 128 columns into float sums. The inputs are the
// operand in shared memory and come as bulk copies of what pack_batch() has laid out. There is no
// barrier of the block: barriers in shared memory say which inputs have come and which have been
// read.
//
// Blocks take even, contiguous parts of all steps of all blocks of results, so that every
// multiprocessor has as much work as any other. Of a block of results that several of them have
// parts of, the one that comes last adds the parts up, in the order of their columns.
#pragma once

#include <cuda_fp16.h>

#include <algorithm>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/gemm/batch_launch.h"
#include "kernels/cuda/gemm/batch_operands.cuh"
#include "kernels/cuda/gemm/batch_wgmma.cuh"
#include "kernels/cuda/launch.h"

namespace walsh::cuda::detail {

inline constexpr int kBatchWeightStages = 4;
inline constexpr int kBatchMostInputStages = 4;

// What a block has in shared memory.
template <typename Decoder, int Vectors, int Groups>
struct BatchMemory {
  static constexpr BatchForm kForm = BatchOperands<Decoder>::kForm;
  static constexpr int kWarps = Groups * 4;
  static constexpr int kStepBytes = batch_step_bytes(kForm, Vectors);
  static constexpr int kInputStage = (kStepBytes + 1023) / 1024 * 1024;
  static constexpr int kSide = 128;  // scales of both chunks, offsets
  static constexpr int kWeightStage = Decoder::kVectors * 512 + kSide;
  static constexpr int kRing = kWeightStage * kBatchWeightStages;  // of a warp
  static constexpr int kBarriers = kBatchMostInputStages * 16;
  static constexpr int kStatic = 64;  // beside what a launch asks for
  static constexpr int kFixed = kRing * kWarps + kBarriers + 1024;

  static int input_stages(size_t limit) {
    const int fit = (static_cast<int>(limit) - kFixed - kStatic) / kInputStage;
    return fit < kBatchMostInputStages ? fit : kBatchMostInputStages;
  }
  static size_t bytes(int input_stages) {
    return static_cast<size_t>(kFixed + kInputStage * input_stages);
  }
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// A block of results and the steps of it that a block of the launch has.
struct BatchPiece {
  int tile;        // number of the block of results
  int begin, end;  // steps
};

// The steps of a launch, block of results after block of results, shared by its blocks.
struct BatchShare {
  int steps;  // of a block of results
  int total;

  __device__ explicit BatchShare(const BatchLaunch& p)
      : steps(p.k_tiles * p.planes), total(steps * p.row_blocks * p.vector_blocks) {}
  __device__ int begin(int block) const {
    return static_cast<int>(static_cast<int64_t>(total) * block / static_cast<int>(gridDim.x));
  }
  // The block that has a step.
  __device__ int block_of(int step) const {
    return static_cast<int>(((static_cast<int64_t>(step) + 1) * static_cast<int>(gridDim.x) - 1) /
                            total);
  }
};

template <typename Decoder, int Part, int Parts, int Groups>
struct BatchTile {
  static constexpr int kVectors = Part * Parts;  // of a block
  static constexpr int kBlocks = Part / 8;       // of 8 vectors, of a part
  static constexpr int kRows = Groups * 64, kWarps = Groups * 4;
  using Memory = BatchMemory<Decoder, kVectors, Groups>;
  using Operands = BatchOperands<Decoder>;
  static constexpr BatchForm kForm = Memory::kForm;
  static constexpr bool kDoubled = kForm == BatchForm::doubled;
  static constexpr int kTurns = Operands::kTurns;  // of four products, of a chunk
  static constexpr int kChunkBytes = kVectors * batch_rows128(kForm) * 128;
  static constexpr int kScaleBytes = kDoubled ? 8 : 4;  // of a vector and chunk
  static constexpr int kScalesAt = 2 * kChunkBytes;
  static constexpr int kTotalsAt = kScalesAt + 2 * kVectors * kScaleBytes;

  using Sums = int[kBlocks][4];
  using Results = float[kBlocks][4];
  using Fragments = uint32_t[4][4];

  // Which codes a warp asks for next.
  struct Fetch {
    const BatchLaunch& p;
    const BatchShare& share;
    uint32_t ring;
    int tile, step, left;  // steps that are still to be asked for
    int column, plane;     // of the step
    int slot = 0;
    const uint4* codes = nullptr;
    const uint4* side = nullptr;  // scales or offsets, of lanes that copy some

    __device__ Fetch(const BatchLaunch& launch, const BatchShare& s, uint32_t ring_address,
                     int begin, int end)
        : p(launch),
          share(s),
          ring(ring_address),
          tile(begin / s.steps),
          step(begin - tile * s.steps),
          left(end - begin) {
      if (left > 0) find();
    }

    __device__ __forceinline__ void find() {
      const int lane = static_cast<int>(threadIdx.x % 32),
                warp = static_cast<int>(threadIdx.x / 32);
      const BatchMatrix& matrix = matrix_of(p, tile);
      const int own = (tile / p.vector_blocks - matrix.first_block) * kWarps + warp;
      const int of = min(own, matrix.tiles - 1);
      const int k_tile = step / p.planes;
      column = k_tile * kKTileColumns, plane = step - k_tile * p.planes;
      codes = matrix.codes +
              (static_cast<int64_t>(of) * p.k_tiles + k_tile) * (Decoder::kWords * 8) + lane;
      side = lane < 4 ? reinterpret_cast<const uint4*>(matrix.scales) +
                            static_cast<int64_t>(of) * p.groups * 2 + lane % 2
                      : reinterpret_cast<const uint4*>(matrix.offsets) +
                            static_cast<int64_t>(of) * p.offset_groups * 2 + lane % 2;
    }

    // Asks for one more step, if there is one.
    __device__ __forceinline__ void next() {
      if (left > 0) {
        const int lane = static_cast<int>(threadIdx.x % 32);
        const uint32_t place = ring + slot * Memory::kWeightStage;
        constexpr int kWhole = Decoder::kWords / 4;
#pragma unroll
        for (int v = 0; v < kWhole; ++v)
          copy_async(place + v * 512 + lane * 16, codes + v * 32);
        if (kWhole < Decoder::kVectors && lane < 16)
          copy_async(place + kWhole * 512 + lane * 16, codes + kWhole * 32);
        const uint32_t side_place = place + Decoder::kVectors * 512 + lane * 16;
        if (lane < 4) {
          copy_async(side_place, side + ((column + lane / 2 * 128) >> p.group_shift) * 2);
        } else if (lane < 6 && p.offset_groups > 0) {
          copy_async(side_place, side + (column >> p.offset_shift) * 2);
        }
        slot = slot + 1 == kBatchWeightStages ? 0 : slot + 1;
        --left;
        if (++step == share.steps) {
          step = 0, ++tile;
          if (left > 0) find();
        } else if (++plane == p.planes) {
          plane = 0, column += kKTileColumns;
          codes += Decoder::kWords * 8;
        }
      }
      copy_commit();
    }
  };

  static __device__ __forceinline__ const BatchMatrix& matrix_of(const BatchLaunch& p, int tile) {
    const int block = tile / p.vector_blocks;
    int which = 0;
    while (which + 1 < p.count && block >= p.matrix[which + 1].first_block)
      ++which;
    return p.matrix[which];
  }

  // Four products of one part of the vectors; `inputs`: their rows of 128 bytes. They add to the
  // sums, or with `First` are these.
  template <bool First>
  static __device__ __forceinline__ void issue(Sums& sum, const Fragments& a, uint32_t inputs,
                                               int part) {
    const uint64_t b = swizzled_operand(inputs + part * Part * 128);
    wgmma_fence();
    wgmma<!First>(sum, a[0], b);
#pragma unroll
    for (int i = 1; i < 4; ++i)
      wgmma<true>(sum, a[i], b + static_cast<uint64_t>(2 * i));
    wgmma_commit();
  }

  // y += scales * sums. `scales`: of this part's vectors in a chunk of the step.
  static __device__ __forceinline__ void flush(const Sums& sum, float2 of_rows, uint32_t scales,
                                               Results& y) {
    const uint32_t t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      if constexpr (kDoubled) {
        const float4 x = shared_float4(scales + (n * 8 + t * 2) * 8);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float value =
              __fmaf_rn(__int2float_rn(sum[n][e]), e % 2 ? x.z : x.x, e % 2 ? x.w : x.y);
          y[n][e] = __fmaf_rn(value, e / 2 ? of_rows.y : of_rows.x, y[n][e]);
        }
      } else {
        const float2 x = shared_float2(scales + (n * 8 + t * 2) * 4);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float value = __fmul_rn(__int2float_rn(sum[n][e]), e / 2 ? of_rows.y : of_rows.x);
          y[n][e] = __fmaf_rn(value, e % 2 ? x.y : x.x, y[n][e]);
        }
      }
    }
  }

  // y += offsets * totals of a step.
  static __device__ __forceinline__ void add_offsets(float2 of_rows, uint32_t totals, Results& y) {
    const uint32_t t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      const float2 x = shared_float2(totals + (n * 8 + t * 2) * 4);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        y[n][e] = __fmaf_rn(e / 2 ? of_rows.y : of_rows.x, e % 2 ? x.y : x.x, y[n][e]);
    }
  }

  // A warp's codes of the step at `place`.
  struct Words {
    uint32_t word[4 * Decoder::kVectors];
    uint32_t before[4];  // trellis codes: the lane before's first words

    __device__ __forceinline__ void load(uint32_t place) {
      const uint32_t lane = threadIdx.x % 32;
      constexpr int kWhole = Decoder::kWords / 4;
#pragma unroll
      for (int v = 0; v < kWhole; ++v) {
        const uint4 w = shared_words(place + v * 512 + lane * 16);
        word[4 * v] = w.x, word[4 * v + 1] = w.y, word[4 * v + 2] = w.z, word[4 * v + 3] = w.w;
      }
      if constexpr (kWhole < Decoder::kVectors) {
        const float2 w = shared_float2(place + kWhole * 512 + lane * 8);
        word[4 * kWhole] = __float_as_uint(w.x), word[4 * kWhole + 1] = __float_as_uint(w.y);
      }
      if constexpr (kIsTrellis<Decoder>) {
        const uint4 w = shared_words(
            place + static_cast<uint32_t>(trellis_lane_before(static_cast<int>(lane))) * 16);
        before[0] = w.x, before[1] = w.y, before[2] = w.z, before[3] = w.w;
      }
    }
  };

  // Rows g and g + 8 of a warp's scales, or offsets.
  static __device__ __forceinline__ float2 side_of(uint32_t place, int chunk) {
    const uint32_t g = threadIdx.x % 32 / 4;
    return halves(shared_word(place + Decoder::kVectors * 512 + chunk * 32 + g * 4));
  }

  struct Inputs {
    uint32_t stages, barriers;
    int count, slot = 0, parity = 0;

    __device__ __forceinline__ uint32_t place() const {
      return stages + slot * Memory::kInputStage;
    }
    __device__ __forceinline__ uint32_t full() const { return barriers + slot * 16; }
    __device__ __forceinline__ uint32_t empty() const { return barriers + slot * 16 + 8; }
    __device__ __forceinline__ void advance() {
      if (++slot == count) slot = 0, parity ^= 1;
    }
  };

  // Asks for inputs, by one thread, as many steps ahead as there are places but one.
  struct InputFetch {
    const BatchLaunch& p;
    Inputs in;
    int tile, step, left;
    bool again = false;  // places have been used before
    const std::byte* from = nullptr;

    __device__ InputFetch(const BatchLaunch& launch, const BatchShare& share, const Inputs& inputs,
                          int begin, int end)
        : p(launch),
          in(inputs),
          tile(begin / share.steps),
          step(begin - tile * share.steps),
          left(end - begin) {
      find(share);
    }
    __device__ __forceinline__ void find(const BatchShare& share) {
      from = p.inputs + (static_cast<int64_t>(tile % p.vector_blocks) * share.steps + step) *
                            Memory::kStepBytes;
    }
    __device__ __forceinline__ void next(const BatchShare& share) {
      if (left == 0) return;
      --left;
      if (again) wait_barrier(in.empty(), in.parity ^ 1);
      arrive_expecting(in.full(), Memory::kStepBytes);
      copy_bulk(in.place(), from, Memory::kStepBytes, in.full());
      in.advance();
      again |= in.slot == 0;
      from += Memory::kStepBytes;
      if (++step == share.steps) {
        step = 0, ++tile;
        find(share);
      }
    }
  };

  static __device__ __forceinline__ void run(const BatchLaunch& p, unsigned char* shared) {
    const int warp = static_cast<int>(threadIdx.x / 32);
    const uint32_t start = (shared_address(shared) + 1023u) & ~1023u;
    const uint32_t rings = start + p.input_stages * Memory::kInputStage;
    Inputs in{start, rings + Memory::kRing * kWarps, p.input_stages};
    if (threadIdx.x == 0) {
      for (int k = 0; k < p.input_stages; ++k) {
        start_barrier(in.barriers + k * 16, 1);
        start_barrier(in.barriers + k * 16 + 8, kWarps);
      }
      show_barriers();
    }
    __syncthreads();
    allow_next_kernel();
    const BatchShare share(p);
    const int begin = share.begin(static_cast<int>(blockIdx.x));
    const int end = share.begin(static_cast<int>(blockIdx.x) + 1);
    multiply(p, share, in, rings + warp * Memory::kRing, begin, end);
  }

  static __device__ __forceinline__ void multiply(const BatchLaunch& p, const BatchShare& share,
                                                  Inputs in, uint32_t ring, int begin, int end) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const LevelTable table = p.levels;
    Fetch fetch(p, share, ring, begin, end);
#pragma unroll
    for (int k = 0; k < kBatchWeightStages - 1; ++k)
      fetch.next();
    wait_previous_kernel();
    InputFetch inputs(p, share, in, begin, end);
    const bool asks = threadIdx.x == 0;
    if (asks) {
      for (int k = 0; k < in.count - 1; ++k)
        inputs.next(share);
    }

    Words words;
    Fragments a[2];
    uint32_t place = ring;
    int slot = 0;
    copy_wait<kBatchWeightStages - 2>();
    __syncwarp();
    words.load(place);
    Operands::template decode<0>(words.word, words.before, table, a[0]);

    int tile = begin / share.steps, step = begin - tile * share.steps;
    for (int k = begin; k < end;) {
      const BatchPiece piece{tile, step, min(share.steps, step + end - k)};
      k += piece.end - piece.begin;
      float y[Parts][kBlocks][4] = {};
      for (; step < piece.end; ++step) {
        fetch.next();
        // With two places the other one has to be filled now, which waits for all warps.
        if (asks && in.count == 2) inputs.next(share);
        __syncwarp();
        wait_barrier(in.full(), in.parity);
        const float2 scale[2] = {side_of(place, 0), side_of(place, 1)};
        float2 offset{};
        if (!kDoubled && p.offset_groups > 0) {
          offset = side_of(place, 2);
          offset.x *= p.inverse_unit, offset.y *= p.inverse_unit;
        }
        // The codes of the step behind this one, if there is one.
        const auto load_next = [&] {
          slot = slot + 1 == kBatchWeightStages ? 0 : slot + 1;
          place = ring + slot * Memory::kWeightStage;
          copy_wait<kBatchWeightStages - 2>();
          __syncwarp();
          words.load(place);
          Operands::template decode<0>(words.word, words.before, table, a[0]);
        };
        int sum[Parts][kBlocks][4];
        multiply_turn<0>(in.place(), words, table, scale, a, sum, y, load_next);
        if (!kDoubled && p.offset_groups > 0) {
#pragma unroll
          for (int part = 0; part < Parts; ++part)
            add_offsets(offset, in.place() + kTotalsAt + part * Part * 4, y[part]);
        }
        release(in, lane);
        in.advance();
        if (asks && in.count > 2) inputs.next(share);
        __syncwarp();
      }
      finish(p, share, piece, y);
      step = 0, ++tile;
    }
  }

  // The products of both chunks of a step, turn by turn. The tensor cores multiply while the codes
  // of the next turn become operands, and while other sums are scaled.
  template <int Turn, typename LoadNext>
  static __device__ __forceinline__ void multiply_turn(uint32_t inputs, const Words& words,
                                                       const LevelTable& table,
                                                       const float2 (&scale)[2], Fragments (&a)[2],
                                                       int (&sum)[Parts][kBlocks][4],
                                                       float (&y)[Parts][kBlocks][4],
                                                       const LoadNext& load_next) {
    constexpr int kChunk = Turn / kTurns;
    constexpr bool kFirst = Turn % kTurns == 0, kLast = Turn % kTurns == kTurns - 1;
    constexpr bool kBegins = Turn == 0, kEnds = Turn == 2 * kTurns - 1;
    const uint32_t rows = inputs + Turn * kVectors * 128;
    const uint32_t scales = inputs + kScalesAt + kChunk * kVectors * kScaleBytes;
    if constexpr (Parts == 1 || kBegins) issue<kFirst>(sum[0], a[Turn % 2], rows, 0);
    if constexpr (Parts == 2 && kBegins) issue<kFirst>(sum[1], a[Turn % 2], rows, 1);
    if constexpr (!kBegins) {
      // The operands of the turn before are free now.
      if constexpr (Parts == 1 && !kFirst) {
        wgmma_wait<1>();
        hold(a[(Turn + 1) % 2]);
      }
    }
    if constexpr (kEnds) {
      load_next();
    } else {
      Operands::template decode<Turn + 1>(words.word, words.before, table, a[(Turn + 1) % 2]);
    }
    if constexpr (Parts == 1) {
      if constexpr (kLast) {
        wgmma_wait<0>();
        hold(sum[0]);
        hold(a[Turn % 2]);
        flush(sum[0], scale[kChunk], scales, y[0]);
      }
    } else {
      const uint32_t next = rows + kVectors * 128;
      wgmma_wait<1>();
      hold(sum[0]);
      if constexpr (kLast) flush(sum[0], scale[kChunk], scales, y[0]);
      if constexpr (!kEnds) issue<kLast>(sum[0], a[(Turn + 1) % 2], next, 0);
      wgmma_wait<kEnds ? 0 : 1>();
      hold(sum[1]);
      hold(a[Turn % 2]);
      if constexpr (kLast) flush(sum[1], scale[kChunk], scales + Part * kScaleBytes, y[1]);
      if constexpr (!kEnds) issue<kLast>(sum[1], a[(Turn + 1) % 2], next, 1);
    }
    if constexpr (!kEnds)
      multiply_turn<Turn + 1>(inputs, words, table, scale, a, sum, y, load_next);
  }

  // Says that this warp has read the inputs of a step.
  static __device__ __forceinline__ void release(const Inputs& in, int lane) {
    __syncwarp();
    if (lane == 0) arrive_barrier(in.empty());
  }

  static __device__ __forceinline__ void finish(const BatchLaunch& p, const BatchShare& share,
                                                const BatchPiece& piece,
                                                float (&y)[Parts][kBlocks][4]) {
    if (piece.begin > 0 || piece.end < share.steps) {
      if (!add_parts(p, share, piece, y)) return;
    }
    store(p, piece.tile, y);
  }

  // Leaves this part of a block of results where the one that comes last finds it. True for that
  // one, which then has the sum of all.
  static __device__ __forceinline__ bool add_parts(const BatchLaunch& p, const BatchShare& share,
                                                   const BatchPiece& piece,
                                                   float (&y)[Parts][kBlocks][4]) {
    __shared__ int last[Groups];
    const int group = static_cast<int>(threadIdx.x / 128);
    const int thread = static_cast<int>(threadIdx.x % 128);
    const int first = share.block_of(piece.tile * share.steps);
    const int final = share.block_of((piece.tile + 1) * share.steps - 1);
    // Block b has two places: for a block of results that it begins, and for one that it does not.
    const auto place = [&](int block, bool begins) {
      return p.parts + (static_cast<int64_t>(block) * 2 + (begins ? 1 : 0)) * (kBatchValues / 4) +
             group * (Parts * kBlocks * 128) + thread;
    };
    float4* own = place(static_cast<int>(blockIdx.x), piece.begin == 0);
#pragma unroll
    for (int n = 0; n < Parts * kBlocks; ++n) {
      const float(&v)[4] = y[n / kBlocks][n % kBlocks];
      __stcg(own + n * 128, make_float4(v[0], v[1], v[2], v[3]));
    }
    __threadfence();
    sync_group(group + 1);
    int* arrived = p.arrived + first * Groups + group;
    if (thread == 0) {
      const bool is_last = atomicAdd(arrived, 1) == final - first;
      if (is_last) *arrived = 0;
      last[group] = is_last;
    }
    sync_group(group + 1);
    if (!last[group]) return false;
    __threadfence();
    for (int block = first; block <= final; ++block) {
      const float4* from = place(block, block == first);
#pragma unroll
      for (int n = 0; n < Parts * kBlocks; ++n) {
        const float4 v = __ldcg(from + n * 128);
        float(&to)[4] = y[n / kBlocks][n % kBlocks];
        const bool begins = block == first;
        to[0] = begins ? v.x : to[0] + v.x;
        to[1] = begins ? v.y : to[1] + v.y;
        to[2] = begins ? v.z : to[2] + v.z;
        to[3] = begins ? v.w : to[3] + v.w;
      }
    }
    return true;
  }

  static __device__ __forceinline__ void store(const BatchLaunch& p, int tile,
                                               const float (&y)[Parts][kBlocks][4]) {
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const BatchMatrix& matrix = matrix_of(p, tile);
    const int block = tile / p.vector_blocks - matrix.first_block;
    const int first = tile % p.vector_blocks * kVectors + 2 * (lane % 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = block * kRows + warp * 16 + lane / 4 + 8 * half;
      if (row >= matrix.rows) continue;
      const float bias = matrix.bias != nullptr ? matrix.bias[row] : 0.0f;
      float unit = p.unit;
      if (matrix.row_factors != nullptr) {
        const float2 factors =
            halves(matrix.row_factors[static_cast<int64_t>(row / 16) * 8 + lane / 4]);
        unit *= half ? factors.y : factors.x;
      }
#pragma unroll
      for (int n = 0; n < Parts * kBlocks; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int token = first + 8 * n + e;
          if (token >= p.m) continue;
          float* out = matrix.y + token * matrix.ldy + row;
          *out = __fmaf_rn(y[n / kBlocks][n % kBlocks][2 * half + e], unit,
                           matrix.add ? *out + bias : bias);
        }
      }
    }
  }
};

#endif

template <typename Decoder, int Part, int Parts, int Groups>
__global__ void __launch_bounds__(Groups * 128, 1)
    batch_kernel(const __grid_constant__ BatchLaunch launch) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(16) unsigned char batch_shared[];
  BatchTile<Decoder, Part, Parts, Groups>::run(launch, batch_shared);
#endif
}

template <typename Decoder, int Part, int Parts, int Groups>
bool launch_batch_blocks(BatchLaunch* work, Stream stream) {
  using Memory = BatchMemory<Decoder, Part * Parts, Groups>;
  const auto kernel = batch_kernel<Decoder, Part, Parts, Groups>;
  if (current_device().major != 9 || !has_body(kernel)) return false;
  const int stages = Memory::input_stages(current_device().shared_bytes);
  if (stages < 2) return false;
  if (work == nullptr) return true;
  constexpr int kRows = Groups * 64;
  work->input_stages = stages;
  work->row_blocks = 0;
  for (int k = 0; k < work->count; ++k) {
    work->matrix[k].first_block = work->row_blocks;
    work->row_blocks += (work->matrix[k].rows + kRows - 1) / kRows;
  }
  // Every block has a step at least: parts of results come from all blocks between the first and
  // the last.
  const int total = work->k_tiles * work->planes * work->row_blocks * work->vector_blocks;
  cuda::launch("products of a batch", kernel,
               {dim3(static_cast<unsigned>(std::min(current_device().multiprocessors, total))),
                dim3(Groups * 128), Memory::bytes(stages)},
               stream, *work);
  return true;
}

// The shapes that are compiled.
template <typename Decoder>
bool launch_batch(BatchShape shape, BatchLaunch* launch, Stream stream) {
  if (shape.vectors == 32) return launch_batch_blocks<Decoder, 32, 1, 4>(launch, stream);
  if (shape.vectors == 64 && shape.groups == 4)
    return launch_batch_blocks<Decoder, 64, 1, 4>(launch, stream);
  if (shape.vectors == 64 && shape.groups == 3)
    return launch_batch_blocks<Decoder, 32, 2, 3>(launch, stream);
  if (shape.vectors == 64) return launch_batch_blocks<Decoder, 32, 2, 2>(launch, stream);
  if (shape.vectors == 96) return launch_batch_blocks<Decoder, 48, 2, 2>(launch, stream);
  if (shape.vectors == 128) return launch_batch_blocks<Decoder, 64, 2, 2>(launch, stream);
  return false;
}

}  // namespace walsh::cuda::detail
