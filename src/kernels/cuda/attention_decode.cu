// Attention of single rows against long sequences, bound by reading the cache.
//
// A block takes a part of one row's positions for up to 8 query heads of one cache head. Its warps
// work alone: each reads 16 positions of every step through a ring of its own, and keeps its own
// softmax and sums; they are put together at the end, and the parts of a row by the block that
// comes last, in order. Products are transposed, S^T = K Q^T and O^T = V^T P^T, so that positions
// fill the 16 rows of the tensor cores' operand and the few heads its 8 columns.
#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/launch.h"

namespace walsh::cuda {
namespace {

struct DecodeArgs {
  CacheView cache;
  const int32_t* positions = nullptr;
  const int32_t* sequences = nullptr;
  const float* q = nullptr;
  int64_t ldq = 0;
  float* out = nullptr;
  int64_t ldo = 0;
  int heads = 0, group = 0, tiles = 0;  // tiles of 8 heads in a group
  int window = 0;
  float scale = 1;  // of logits in base 2
  float* partials = nullptr;
  int32_t* arrived = nullptr;
};

template <int Dim>
struct DecodeShape {
  static constexpr int kWarps = Dim <= 128 ? 4 : 2;
  static constexpr int kStages = Dim <= 64 ? 3 : 2;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kUnit = kWarps * kWarpTokens;  // positions of a block's step
  static constexpr int kTileBytes = kWarpTokens * TileLayout<Dim>::kRowBytes;
  static constexpr int kRingBytes = kStages * 2 * kTileBytes;  // of a warp: keys and values
  static constexpr int kSumStride = Dim + 4;                   // floats of a head's sums
  static constexpr int kShared = kWarps * kRingBytes;
  static_assert(kShared >= kWarps * kTileHeads * (kSumStride + 2) * 4 &&
                    kShared >= kTileHeads * (kMaxSplits + 1) * 4,
                "sums and factors reuse the ring");
};

// What a block works on.
struct Part {
  int row, sequence;
  int kv_head, first_head, heads;  // heads of the group's tile
  int begin, end;                  // visible positions
  int first_unit, last_unit;       // of this block
  int active;                      // blocks with work for this row

  template <int Unit>
  static __device__ Part of_block(const DecodeArgs& args) {
    Part p;
    p.row = static_cast<int>(blockIdx.z);
    p.kv_head = static_cast<int>(blockIdx.y) / args.tiles;
    const int tile = static_cast<int>(blockIdx.y) % args.tiles;
    p.first_head = p.kv_head * args.group + tile * kTileHeads;
    p.heads = min(kTileHeads, args.group - tile * kTileHeads);
    p.end = args.positions[p.row] + 1;
    p.sequence = args.sequences[p.row];
    p.begin = args.window > 0 ? max(0, p.end - args.window) : 0;
    const int first = p.begin / Unit;
    const int units = (p.end + Unit - 1) / Unit - first;
    p.active = min(static_cast<int>(gridDim.x), units);
    const int64_t split = blockIdx.x;
    p.first_unit = first + static_cast<int>(split * units / max(p.active, 1));
    p.last_unit = first + static_cast<int>((split + 1) * units / max(p.active, 1));
    return p;
  }
};

template <int Dim>
__device__ __forceinline__ void load_queries(const DecodeArgs& args, const Part& part, int lane,
                                             uint32_t (&q)[Dim / 16][2]) {
  const int head = lane / 4, column = 2 * (lane % 4);
  const int dim = args.cache.head_dim;
  const float* from = args.q + part.row * args.ldq + (part.first_head + head) * dim;
#pragma unroll
  for (int i = 0; i < Dim / 8; ++i) {
    const int c = 8 * i + column;
    float2 v = make_float2(0, 0);
    if (head < part.heads && c < dim) v = *reinterpret_cast<const float2*>(from + c);
    q[i / 2][i % 2] = pack_halves(v.x, v.y);
  }
}

// One step: 16 positions, of which those in [low, high) count.
template <int Dim>
__device__ __forceinline__ void attend_tile(const uint32_t (&q)[Dim / 16][2], uint32_t keys,
                                            uint32_t values, int low, int high, float scale,
                                            int lane, Running<Dim>& run) {
  using Layout = TileLayout<Dim>;
  const int matrix = lane / 8, r = lane % 8;
  float s[2][4] = {};
  const uint32_t key_row = keys + Layout::offset(r + 8 * (matrix & 1), matrix >> 1);
#pragma unroll
  for (int k = 0; k < Dim / 16; ++k) {
    uint32_t a[4];
    load_matrices(a, key_row ^ Layout::step(k));
    mma_f16(s[k % 2], a, q[k][0], q[k][1]);
  }
  const float logits[4] = {s[0][0] + s[1][0], s[0][1] + s[1][1], s[0][2] + s[1][2],
                           s[0][3] + s[1][3]};
  uint32_t b0, b1;
  weigh_tile<Dim>(logits, low, high, scale, lane, run, b0, b1);
  const uint32_t value_row = values + Layout::offset(r + 8 * (matrix >> 1), matrix & 1);
#pragma unroll
  for (int d = 0; d < Dim / 16; ++d) {
    uint32_t a[4];
    load_transposed(a, value_row ^ Layout::step(d));
    mma_f16(run.sum[d], a, b0, b1);
  }
}

// All steps of a warp.
template <int Dim>
__device__ __forceinline__ void attend_part(const DecodeArgs& args, const Part& part, uint32_t ring,
                                            int warp, int lane, Running<Dim>& run) {
  using Shape = DecodeShape<Dim>;
  const int32_t* pages = args.cache.pages + part.sequence * args.cache.per_sequence;
  const auto issue = [&](int unit, int stage) {
    const int token = unit * Shape::kUnit + warp * kWarpTokens;
    const int low = part.begin - token, high = part.end - token;
    if (unit < part.last_unit && low < kWarpTokens && high > 0) {
      const int64_t page = pages[token / kPageTokens];
      const int first = token % kPageTokens;
      const uint32_t to = ring + static_cast<uint32_t>(stage * 2 * Shape::kTileBytes);
      F16Tiles::load<TileLayout<Dim>, kWarpTokens, 32>(args.cache.keys, args.cache, page,
                                                       part.kv_head, first, low, high, to, lane);
      F16Tiles::load<TileLayout<Dim>, kWarpTokens, 32>(args.cache.values, args.cache, page,
                                                       part.kv_head, first, low, high,
                                                       to + Shape::kTileBytes, lane);
    }
    copy_commit();
  };
  // The kernel before this one writes the queries and the row's own position, nothing of the
  // positions before it: those of earlier steps are complete, the embedding having waited for all
  // of them before it let others start. So tiles without the newest position are fetched ahead of
  // the wait.
  bool waited = false;
#pragma unroll
  for (int i = 0; i < Shape::kStages - 1; ++i) {
    const int token = (part.first_unit + i) * Shape::kUnit + warp * kWarpTokens;
    if (!waited && part.end - token <= kWarpTokens) {
      wait_previous_kernel();
      waited = true;
    }
    issue(part.first_unit + i, i);
  }
  if (!waited) wait_previous_kernel();
  uint32_t q[Dim / 16][2];
  load_queries<Dim>(args, part, lane, q);
  int stage = 0;
  for (int unit = part.first_unit; unit < part.last_unit; ++unit) {
    issue(unit + Shape::kStages - 1, (stage + Shape::kStages - 1) % Shape::kStages);
    copy_wait<Shape::kStages - 1>();
    __syncwarp();
    const int token = unit * Shape::kUnit + warp * kWarpTokens;
    const int low = part.begin - token, high = part.end - token;
    if (low < kWarpTokens && high > 0) {
      const uint32_t keys = ring + static_cast<uint32_t>(stage * 2 * Shape::kTileBytes);
      attend_tile<Dim>(q, keys, keys + Shape::kTileBytes, low, high, args.scale, lane, run);
    }
    __syncwarp();
    stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
  }
  copy_wait<0>();
}

// Largest logits, totals and sums of the warps, in shared memory: float sums[warp][head][stride],
// float2 [warp][head].
template <int Dim>
__device__ __forceinline__ void share(const Running<Dim>& run, float* sums, float2* state, int warp,
                                      int lane) {
  using Shape = DecodeShape<Dim>;
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float total = sum_totals(run.total[h]);
    const int slot = warp * kTileHeads + 2 * t + h;
    if (g == 0) state[slot] = make_float2(run.largest[h], total);
#pragma unroll
    for (int d = 0; d < Dim / 16; ++d) {
      sums[slot * Shape::kSumStride + 16 * d + g] = run.sum[d][h];
      sums[slot * Shape::kSumStride + 16 * d + g + 8] = run.sum[d][h + 2];
    }
  }
}

__device__ __forceinline__ void add_scaled(float4& sum, const float4& v, float factor) {
  sum.x = __fmaf_rn(v.x, factor, sum.x);
  sum.y = __fmaf_rn(v.y, factor, sum.y);
  sum.z = __fmaf_rn(v.z, factor, sum.z);
  sum.w = __fmaf_rn(v.w, factor, sum.w);
}

__device__ __forceinline__ void store_scaled(float* to, const float4& v, float factor) {
  reinterpret_cast<float2*>(to)[0] = make_float2(v.x * factor, v.y * factor);
  reinterpret_cast<float2*>(to)[1] = make_float2(v.z * factor, v.w * factor);
}

// Where the parts of a row and head lie: values [row][head][split][head_dim], then float2 of
// largest logit and total [row][head][split].
struct Partials {
  float* values;
  float2* state;

  __device__ Partials(const DecodeArgs& args, int row, int head) {
    const int64_t rows = static_cast<int64_t>(gridDim.z) * args.heads * gridDim.x;
    const int64_t first = (static_cast<int64_t>(row) * args.heads + head) * gridDim.x;
    values = args.partials + first * args.cache.head_dim;
    state = reinterpret_cast<float2*>(args.partials + rows * args.cache.head_dim) + first;
  }
};

// The warps' sums to one part, which is the result if there is no other.
template <int Dim>
__device__ __forceinline__ void join_warps(const DecodeArgs& args, const Part& part,
                                           const float* sums, const float2* state) {
  using Shape = DecodeShape<Dim>;
  const int dim = args.cache.head_dim, quads = dim / 4;
  for (int i = static_cast<int>(threadIdx.x); i < part.heads * quads; i += Shape::kThreads) {
    const int head = i / quads, column = 4 * (i % quads);
    float largest = kNothing, total = 0;
    for (int w = 0; w < Shape::kWarps; ++w)
      largest = fmaxf(largest, state[w * kTileHeads + head].x);
    const float base = exponent_base(largest, args.scale);
    float4 sum = make_float4(0, 0, 0, 0);
    for (int w = 0; w < Shape::kWarps; ++w) {
      const int slot = w * kTileHeads + head;
      const float factor = power_of_two(__fmaf_rn(state[slot].x, args.scale, -base));
      total = __fmaf_rn(state[slot].y, factor, total);
      add_scaled(sum, *reinterpret_cast<const float4*>(sums + slot * Shape::kSumStride + column),
                 factor);
    }
    if (part.active == 1) {
      float* out = args.out + part.row * args.ldo + (part.first_head + head) * dim + column;
      store_scaled(out, sum, 1.0f / total);
    } else {
      const Partials to(args, part.row, part.first_head + head);
      store_scaled(to.values + blockIdx.x * static_cast<int64_t>(dim) + column, sum, 1.0f);
      if (column == 0) to.state[blockIdx.x] = make_float2(largest, total);
    }
  }
}

// What each part counts for, factor[head][part], and the inverse of its head's total. A warp per
// head.
template <int Dim>
__device__ __forceinline__ void weigh_parts(const DecodeArgs& args, const Part& part, float* factor,
                                            float* inverse, int warp, int lane) {
  for (int head = warp; head < part.heads; head += DecodeShape<Dim>::kWarps) {
    const float2* state = Partials(args, part.row, part.first_head + head).state;
    float largest = kNothing, total = 0;
    for (int s = lane; s < part.active; s += 32)
      largest = fmaxf(largest, __ldcg(&state[s]).x);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, distance));
    const float base = exponent_base(largest, args.scale);
    for (int s = lane; s < part.active; s += 32) {
      const float2 of = __ldcg(&state[s]);
      factor[head * kMaxSplits + s] = power_of_two(__fmaf_rn(of.x, args.scale, -base));
      total = __fmaf_rn(of.y, factor[head * kMaxSplits + s], total);
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      total += __shfl_xor_sync(~0u, total, distance);
    if (lane == 0) inverse[head] = 1.0f / total;
  }
}

// The parts of all blocks, in their order.
template <int Dim>
__device__ __forceinline__ void join_parts(const DecodeArgs& args, const Part& part, float* memory,
                                           int warp, int lane) {
  float* inverse = memory + kTileHeads * kMaxSplits;
  weigh_parts<Dim>(args, part, memory, inverse, warp, lane);
  __syncthreads();
  const int dim = args.cache.head_dim, quads = dim / 4;
  for (int i = static_cast<int>(threadIdx.x); i < part.heads * quads;
       i += DecodeShape<Dim>::kThreads) {
    const int head = i / quads, column = 4 * (i % quads);
    const float* values = Partials(args, part.row, part.first_head + head).values + column;
    const float* factor = memory + head * kMaxSplits;
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 16
    for (int s = 0; s < part.active; ++s) {
      const auto* v = reinterpret_cast<const float4*>(values + s * static_cast<int64_t>(dim));
      add_scaled(sum, __ldcg(v), factor[s]);
    }
    store_scaled(args.out + part.row * args.ldo + (part.first_head + head) * dim + column, sum,
                 inverse[head]);
  }
}

// Grid: x over the parts of a row, y over tiles of heads, z over rows.
template <int Dim>
__global__ void __launch_bounds__(DecodeShape<Dim>::kThreads)
    decode_kernel(const __grid_constant__ DecodeArgs args) {
  using Shape = DecodeShape<Dim>;
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ bool last;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  allow_next_kernel();
  const Part part = Part::of_block<Shape::kUnit>(args);
  if (static_cast<int>(blockIdx.x) >= part.active) {
    wait_previous_kernel();
    return;
  }

  Running<Dim> run;
  attend_part<Dim>(args, part,
                   shared_address(memory) + static_cast<uint32_t>(warp * Shape::kRingBytes), warp,
                   lane, run);
  __syncthreads();
  float* sums = reinterpret_cast<float*>(memory);
  float2* state = reinterpret_cast<float2*>(sums + Shape::kWarps * kTileHeads * Shape::kSumStride);
  share<Dim>(run, sums, state, warp, lane);
  __syncthreads();
  join_warps<Dim>(args, part, sums, state);
  if (part.active == 1) return;

  __threadfence();
  __syncthreads();
  int32_t* arrived = args.arrived + blockIdx.z * gridDim.y + blockIdx.y;
  if (threadIdx.x == 0) last = atomicAdd(arrived, 1) == part.active - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  join_parts<Dim>(args, part, sums, warp, lane);
  if (threadIdx.x == 0) *arrived = 0;
}

template <int Dim>
void launch_decode(const DecodeArgs& args, int64_t m, int splits, Stream stream) {
  using Shape = DecodeShape<Dim>;
  const LaunchShape shape{
      dim3(static_cast<unsigned>(splits), static_cast<unsigned>(args.cache.kv_heads * args.tiles),
           static_cast<unsigned>(m)),
      dim3(Shape::kThreads), Shape::kShared};
  launch("attention", decode_kernel<Dim>, shape, stream, args);
}

}  // namespace

void attend_rows(const AttentionCall& call, int64_t longest, const AttentionScratch& scratch,
                 Stream stream) {
  if (call.m == 0) return;
  DecodeArgs args;
  args.cache = detail::cache_view(call);
  args.positions = call.rows.positions;
  args.sequences = call.rows.sequences;
  args.q = call.q;
  args.ldq = call.ldq;
  args.out = call.out;
  args.ldo = call.ldo;
  args.heads = call.heads;
  args.group = call.heads / call.cache->kv_heads;
  args.tiles = detail::head_tiles(call.heads, call.cache->kv_heads);
  args.window = static_cast<int>(call.window);
  args.scale = call.scale * kLog2E;
  args.partials = scratch.partials();
  args.arrived = scratch.arrived();
  const int dim = call.cache->head_dim;
  const int splits = detail::attention_splits(call.m, call.heads, call.cache->kv_heads, dim,
                                              attention_reach(longest));
  const auto launch = dim <= 64    ? launch_decode<64>
                      : dim <= 96  ? launch_decode<96>
                      : dim <= 128 ? launch_decode<128>
                                   : launch_decode<256>;
  launch(args, call.m, splits, stream);
}

}  // namespace walsh::cuda
