// Attention of single rows over long sequences, bound by reading the cache.
//
// A block takes a part of one row's positions for up to 8 query heads of one KV head. Its warps
// work independently: each reads 16 positions per step through a ring of its own, with its own
// softmax and sums, which are combined at the end; the parts of a row are combined in order by the
// block that finishes last. Products are transposed, S^T = K Q^T and O^T = V^T P^T, so that
// positions fill the 16 rows of the tensor core operand and the few heads its 8 columns.
//
// The tensor cores have time to spare: queries and softmax weights are sums of two halves each, so
// that nothing but the cache is rounded to fp16.
#include "kernels/cuda/attention/parts.cuh"
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
  int group = 0, tiles = 0;  // tiles of 8 heads per group
  int window = 0;
  PartsArgs parts;
  LogitCap cap;
};

template <int Dim>
struct DecodeShape {
  static constexpr int kWarps = Dim <= 128 ? 4 : 2;
  static constexpr int kStages = Dim <= 64 ? 3 : 2;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kUnit = kWarps * kWarpTokens;  // positions per step of a block
  static constexpr int kTileBytes = kWarpTokens * TileLayout<Dim>::kRowBytes;
  static constexpr int kRingBytes = kStages * 2 * kTileBytes;  // per warp, for keys and values
  static constexpr int kShared = kWarps * kRingBytes;
  static_assert(kShared >= PartsShape<Dim, kWarps>::kFloats * 4, "sums and factors reuse the ring");
};

// Queries as operand b, each split into near + 2^-11 rest. Scaling makes the rest as large as
// `near`, and so as exact for small numbers.
template <int Dim>
struct SplitQueries {
  static constexpr float kRestTimes = 2048;
  uint32_t near[Dim / 16][2], rest[Dim / 16][2];
};

// The work of a block.
struct Part : PartHeads {
  int sequence, kv_head;
  int begin, end;             // visible positions
  int first_unit, last_unit;  // of this block

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
    p.begin = first_seen(args.window, p.end - 1);
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
                                             SplitQueries<Dim>& q) {
  const int head = lane / 4, column = 2 * (lane % 4);
  const int dim = args.cache.head_dim;
  const float* from = args.q + part.row * args.ldq + (part.first_head + head) * dim;
#pragma unroll
  for (int i = 0; i < Dim / 8; ++i) {
    const int c = 8 * i + column;
    float2 v = make_float2(0, 0);
    if (head < part.heads && c < dim) v = *reinterpret_cast<const float2*>(from + c);
    const uint32_t near = pack_halves(v.x, v.y);
    q.near[i / 2][i % 2] = near;
    q.rest[i / 2][i % 2] = pack_rests(near, v.x, v.y, SplitQueries<Dim>::kRestTimes);
  }
}

// One step: 16 positions, of which those in [low, high) are visible.
template <int Dim, bool Capped>
__device__ __forceinline__ void attend_tile(const DecodeArgs& args, const SplitQueries<Dim>& q,
                                            uint32_t keys, uint32_t values, int low, int high,
                                            int lane, Running<Dim>& run) {
  using Layout = TileLayout<Dim>;
  const int matrix = lane / 8, r = lane % 8;
  float near[2][4] = {}, rest[2][4] = {};  // separate accumulators keep chains of products short
  const uint32_t key_row = keys + Layout::offset(r + 8 * (matrix & 1), matrix >> 1);
#pragma unroll
  for (int k = 0; k < Dim / 16; ++k) {
    uint32_t a[4];
    load_matrices(a, key_row ^ Layout::step(k));
    mma_f16(near[k % 2], a, q.near[k][0], q.near[k][1]);
    mma_f16(rest[k % 2], a, q.rest[k][0], q.rest[k][1]);
  }
  float logits[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    logits[e] = __fmaf_rn(rest[0][e] + rest[1][e], 1 / SplitQueries<Dim>::kRestTimes,
                          near[0][e] + near[1][e]);
  }
  cap_tile<Capped>(args.cap, logits);
  uint32_t b[2], b_rest[2];
  weigh_tile<Dim, false>(
      logits, low, high, args.parts.scale, lane, run, 0, [&](const float(&p)[4]) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const uint32_t packed = pack_halves(p[2 * i], p[2 * i + 1]);
          b[i] = transpose8x8(packed);
          b_rest[i] = transpose8x8(pack_rests(packed, p[2 * i], p[2 * i + 1], 1));
        }
      });
  const uint32_t value_row = values + Layout::offset(r + 8 * (matrix >> 1), matrix & 1);
#pragma unroll
  for (int d = 0; d < Dim / 16; ++d) {
    uint32_t a[4];
    load_transposed(a, value_row ^ Layout::step(d));
    mma_f16(run.sum[d], a, b[0], b[1]);
    mma_f16(run.sum[d], a, b_rest[0], b_rest[1]);
  }
}

// All steps of a warp.
template <int Dim, bool Capped>
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
  // The preceding kernel writes the queries and the row's own position, but no earlier positions:
  // those are complete, because the embedding waited for all earlier steps before it let others
  // start. So tiles without the newest position are fetched ahead of the wait.
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
  SplitQueries<Dim> q;
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
      attend_tile<Dim, Capped>(args, q, keys, keys + Shape::kTileBytes, low, high, lane, run);
    }
    __syncwarp();
    stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
  }
  copy_wait<0>();
}

// Grid: x over the parts of a row, y over tiles of heads, z over rows.
template <int Dim, bool Capped>
__global__ void __launch_bounds__(DecodeShape<Dim>::kThreads)
    decode_kernel(const __grid_constant__ DecodeArgs args) {
  using Shape = DecodeShape<Dim>;
  WALSH_SHARED_TILES(memory);
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  allow_next_kernel();
  const Part part = Part::of_block<Shape::kUnit>(args);
  if (static_cast<int>(blockIdx.x) >= part.active) {
    wait_previous_kernel();
    return;
  }

  Running<Dim> run;
  attend_part<Dim, Capped>(args, part,
                           shared_address(memory) + static_cast<uint32_t>(warp * Shape::kRingBytes),
                           warp, lane, run);
  float* out = args.out + part.row * args.ldo + part.first_head * args.cache.head_dim;
  finish_part<Dim, Shape::kWarps>(args.parts, part, run, reinterpret_cast<float*>(memory), warp,
                                  lane, [&](int head, int column, const float4& sum, float factor) {
                                    store_scaled(out + head * args.cache.head_dim + column, sum,
                                                 factor);
                                  });
}

template <int Dim>
void launch_decode(const DecodeArgs& args, int64_t m, int splits, Stream stream) {
  using Shape = DecodeShape<Dim>;
  const LaunchShape shape{
      dim3(static_cast<unsigned>(splits), static_cast<unsigned>(args.cache.kv_heads * args.tiles),
           static_cast<unsigned>(m)),
      dim3(Shape::kThreads), Shape::kShared};
  const bool capped = args.cap.power != 0;
  launch("attention", capped ? decode_kernel<Dim, true> : decode_kernel<Dim, false>, shape, stream,
         args);
}

}  // namespace

void attend_decode(const AttentionCall& call, int64_t longest, const AttentionScratch& scratch,
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
  args.group = call.heads / call.cache->kv_heads;
  args.tiles = detail::head_tiles(call.heads, call.cache->kv_heads);
  args.window = static_cast<int>(call.window);
  args.cap = detail::logit_cap(call);
  const int dim = call.cache->head_dim;
  args.parts = {scratch.partials(),  scratch.arrived(), call.heads, dim,
                call.scale * kLog2E, call.sinks};
  const int splits = detail::attention_splits(call.m, call.heads, call.cache->kv_heads,
                                              dim <= 64 ? 4 : 3, attention_reach(longest));
  const auto launch = dim <= 64    ? launch_decode<64>
                      : dim <= 96  ? launch_decode<96>
                      : dim <= 128 ? launch_decode<128>
                                   : launch_decode<256>;
  launch(args, call.m, splits, stream);
}

}  // namespace walsh::cuda
