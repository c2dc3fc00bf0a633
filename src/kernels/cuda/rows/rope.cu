// Prepares queries and keys and appends keys and values to fp16 pages. A warp takes one head or,
// for many rows, kManyHeads heads of a row.
#include <cuda_fp16.h>

#include <string>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows/query_source.h"
#include "kernels/cuda/rows/rope.cuh"
#include "kernels/cuda/rows/rows.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kManyRowsWarps = 8, kManyHeads = 4;
constexpr int kFewHeads = 64;  // With fewer heads per multiprocessor, a warp takes one head.

struct RopeArgs {
  RopeCall call;
  // The head h of row t of the queries is read at q + t * ld + h * head_ld.
  const float* q = nullptr;
  int64_t q_ld = 0, q_head_ld = 0;
  __half* keys = nullptr;
  __half* values = nullptr;
  int kv_heads = 0, head_dim = 0;
  int turned = 0;  // This many pairs of a head are turned.
  const int32_t* pages = nullptr;
  int64_t per_sequence = 0;
  const int32_t* positions = nullptr;
  const int32_t* sequences = nullptr;
};

// Prepares one head per warp. The grid spans heads in x (queries, then keys, then values) and rows
// in y. N is the number of pairs per lane.
template <int N>
__global__ void __launch_bounds__(kWarps * 32) rope_kernel(const __grid_constant__ RopeArgs args) {
  const RopeCall& call = args.call;
  const int lane = static_cast<int>(threadIdx.x % 32);
  int head = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x / 32);
  allow_next_kernel();
  const int dim = args.head_dim, turned = args.turned;
  const HeadPairs pairs{dim / 2, turned};
  const int64_t row = blockIdx.y;
  // Positions and pages are complete before the step's first kernel lets others start.
  const int64_t position = args.positions[row];
  const int64_t page = args.pages[args.sequences[row] * args.per_sequence + position / kPageTokens];
  if (2 * lane < turned) {
    prefetch(call.cos + position * turned + 2 * lane);
    prefetch(call.sin + position * turned + 2 * lane);
  }
  wait_previous_kernel();
  if (head >= call.heads + 2 * args.kv_heads) return;
  const float* cos = call.cos + position * turned;
  const float* sin = call.sin + position * turned;
  if (head < call.heads) {
    float* q = call.q + row * call.ldq + head * dim;
    PairsOf<N> v[1] = {
        load_pairs<N>(args.q + row * args.q_ld + head * args.q_head_ld, pairs, lane)};
    const auto angles = load_angles<N>(cos, sin, turned, lane);
    prepare_heads(v, query_rule(call), angles, position, pairs, lane);
    store_pairs(v[0], q, pairs, lane, [](float x) { return x; });
    return;
  }
  head -= call.heads;
  const bool key = head < args.kv_heads;
  if (!key) head -= args.kv_heads;
  const int64_t to = ((page * args.kv_heads + head) * kPageTokens + position % kPageTokens) * dim;
  const float* from = key ? call.k + row * call.ldk : call.v + row * call.ldv;
  PairsOf<N> v[1] = {load_pairs<N>(from + head * dim, pairs, lane)};
  if (key) {
    const auto angles = load_angles<N>(cos, sin, turned, lane);
    prepare_heads(v, key_rule(call), angles, position, pairs, lane);
  } else if (call.v_norm != nullptr) {
    prepare_heads(v, value_rule(call), PairsOf<N>{}, position, pairs, lane, false);
  }
  store_pairs(v[0], (key ? args.keys : args.values) + to, pairs, lane,
              [&](float x) { return kept_half(x, key); });
}

// Prepares many rows. Warps take groups of kManyHeads heads of one kind (queries, then keys, then
// values) of each row. Dim is the head dimension, or 0 for any with N pairs per lane.
template <int Dim, int N = kPairs>
__global__ void __launch_bounds__(kManyRowsWarps * 32)
    rope_rows_kernel(const __grid_constant__ RopeArgs args) {
  const RopeCall& call = args.call;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int dim = Dim > 0 ? Dim : args.head_dim, turned = args.turned;
  const int query_groups = (call.heads + kManyHeads - 1) / kManyHeads;
  const int kv_groups = (args.kv_heads + kManyHeads - 1) / kManyHeads;
  const int groups = query_groups + 2 * kv_groups;
  const int unit = static_cast<int>(blockIdx.x * kManyRowsWarps + threadIdx.x / 32);
  const int64_t row = unit / groups;
  int group = unit % groups;
  allow_next_kernel();
  if (row >= call.m) return wait_previous_kernel();
  const HeadPairs pairs{dim / 2, turned};
  const bool query = group < query_groups, value = group >= query_groups + kv_groups;
  if (!query) group -= value ? query_groups + kv_groups : query_groups;
  const int first = group * kManyHeads;
  const int most = (query ? call.heads : args.kv_heads) - first;
  // Positions and pages are complete before the step's first kernel lets others start.
  const int64_t position = args.positions[row];
  PairsOf<N> angles{};
  if (!value)
    angles =
        load_angles<N>(call.cos + position * turned, call.sin + position * turned, turned, lane);
  int64_t to = 0, to_head = int64_t{kPageTokens} * dim;
  if (query) {
    to = row * call.ldq + first * dim, to_head = dim;
  } else {
    const int64_t page =
        args.pages[args.sequences[row] * args.per_sequence + position / kPageTokens];
    to = ((page * args.kv_heads + first) * kPageTokens + position % kPageTokens) * dim;
  }
  wait_previous_kernel();
  const int64_t head_ld = query ? args.q_head_ld : dim;
  const float* from = query   ? args.q + row * args.q_ld
                      : value ? call.v + row * call.ldv
                              : call.k + row * call.ldk;
  PairsOf<N> v[kManyHeads]{};
#pragma unroll
  for (int h = 0; h < kManyHeads; ++h)
    if (h < most) v[h] = load_pairs<N>(from + (first + h) * head_ld, pairs, lane);
  if (!value) {
    const HeadRule rule = query ? query_rule(call) : key_rule(call);
    prepare_heads(v, rule, angles, position, pairs, lane);
  } else if (call.v_norm != nullptr) {
    prepare_heads(v, value_rule(call), angles, position, pairs, lane, false);
  }
#pragma unroll
  for (int h = 0; h < kManyHeads; ++h) {
    if (h >= most) break;
    if (query) {
      store_pairs(v[h], call.q + to + h * to_head, pairs, lane, [](float x) { return x; });
    } else {
      store_pairs(v[h], (value ? args.values : args.keys) + to + h * to_head, pairs, lane,
                  [&](float x) { return kept_half(x, !value); });
    }
  }
}

using RopeKernel = void (*)(const RopeArgs);

RopeKernel rope_rows_kernel_for(int dim) {
  return dim == 64    ? rope_rows_kernel<64>
         : dim == 128 ? rope_rows_kernel<128>
         : dim == 256 ? rope_rows_kernel<256>
         : dim > 256  ? rope_rows_kernel<0, kWidePairs>
                      : rope_rows_kernel<0>;
}

RopeKernel rope_kernel_for(int dim) {
  return dim > 256 ? rope_kernel<kWidePairs> : rope_kernel<kPairs>;
}

}  // namespace

int turned_pairs(const RopeCall& call, int head_dim) {
  if (call.cos == nullptr && call.sin == nullptr) return 0;
  const int rotated = call.rotated == 0 ? head_dim : call.rotated;
  if (call.cos == nullptr || call.sin == nullptr || rotated < 0 || rotated > head_dim ||
      rotated % 2 != 0) {
    throw Error(ErrorCode::internal, "GPU rope",
                std::to_string(rotated) + " of " + std::to_string(head_dim) + " values rotated");
  }
  return rotated / 2;
}

void rope_and_store(const RopeCall& call, const KvPool& cache, const PageTable& table,
                    const RowPlaces& rows, Stream stream) {
  rope_and_store(call, {call.q, call.ldq, cache.head_dim}, cache, table, rows, stream);
}

void rope_and_store(const RopeCall& call, const QuerySource& queries, const KvPool& cache,
                    const PageTable& table, const RowPlaces& rows, Stream stream) {
  if (call.m == 0) return;
  if (call.m > 65535) {
    throw Error(ErrorCode::internal, "GPU rope", std::to_string(call.m) + " rows in one launch");
  }
  RopeArgs args;
  args.call = call;
  args.q = queries.q;
  args.q_ld = queries.ld;
  args.q_head_ld = queries.head_ld;
  args.keys = cache.keys.as<__half>();
  args.values = cache.values.as<__half>();
  args.kv_heads = call.k == nullptr ? 0 : cache.kv_heads;
  args.head_dim = cache.head_dim;
  args.turned = turned_pairs(call, cache.head_dim);
  args.pages = table.pages;
  args.per_sequence = table.per_sequence;
  args.positions = rows.positions;
  args.sequences = rows.sequences;
  const int heads = call.heads + 2 * args.kv_heads;
  if (call.m * heads >= int64_t{kFewHeads} * current_device().multiprocessors) {
    const auto groups_of = [](int count) { return (count + kManyHeads - 1) / kManyHeads; };
    const int64_t groups = groups_of(call.heads) + 2 * groups_of(args.kv_heads);
    const int64_t blocks = (call.m * groups + kManyRowsWarps - 1) / kManyRowsWarps;
    launch("rope", rope_rows_kernel_for(cache.head_dim),
           {dim3(static_cast<unsigned>(blocks)), dim3(kManyRowsWarps * 32)}, stream, args);
    return;
  }
  const LaunchShape shape{
      dim3(static_cast<unsigned>((heads + kWarps - 1) / kWarps), static_cast<unsigned>(call.m)),
      dim3(kWarps * 32)};
  launch("rope", rope_kernel_for(cache.head_dim), shape, stream, args);
}

}  // namespace walsh::cuda
