// Norm and rotary positions of queries and keys, and the append to the cache: one warp per head.
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

struct RopeArgs {
  RopeCall call;
  const float* q = nullptr;  // queries as they come: of head h of row t at q + t * ld + h * head_ld
  int64_t q_ld = 0, q_head_ld = 0;
  __half* keys = nullptr;
  __half* values = nullptr;
  int kv_heads = 0, head_dim = 0;
  int turned = 0;  // pairs of a head that are rotated
  const int32_t* pages = nullptr;
  int64_t per_sequence = 0;
  const int32_t* positions = nullptr;
  const int32_t* sequences = nullptr;
};

// Grid: x over heads (of queries, then keys, then values), y over rows.
__global__ void __launch_bounds__(kWarps * 32) rope_kernel(const __grid_constant__ RopeArgs args) {
  const RopeCall& call = args.call;
  const int lane = static_cast<int>(threadIdx.x % 32);
  int head = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x / 32);
  allow_next_kernel();
  const int dim = args.head_dim, turned = args.turned;
  const HeadPairs pairs{dim / 2, turned};
  const int64_t row = blockIdx.y;
  // Positions and pages are there before the step's first kernel lets others start.
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
    Pairs v = load_pairs(args.q + row * args.q_ld + head * args.q_head_ld, pairs, lane);
    if (call.q_norm) normalize(v, call.q_norm, call.eps, pairs, lane);
    rotate(v, load_angles(cos, sin, turned, lane), turned, lane);
    if (call.q_scale) multiply(v, call.q_scale[position]);
    store_pairs(v, q, pairs, lane, [](float x) { return x; });
    return;
  }
  head -= call.heads;
  const bool key = head < args.kv_heads;
  if (!key) head -= args.kv_heads;
  const int64_t to = ((page * args.kv_heads + head) * kPageTokens + position % kPageTokens) * dim;
  Pairs v = load_pairs((key ? call.k + row * call.ldk : call.v + row * call.ldv) + head * dim,
                       pairs, lane);
  if (key) {
    if (call.k_norm) normalize(v, call.k_norm, call.eps, pairs, lane);
    rotate(v, load_angles(cos, sin, turned, lane), turned, lane);
  }
  store_pairs(v, (key ? args.keys : args.values) + to, pairs, lane,
              [](float x) { return __float2half_rn(x); });
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
  args.kv_heads = cache.kv_heads;
  args.head_dim = cache.head_dim;
  args.turned = turned_pairs(call, cache.head_dim);
  args.pages = table.pages;
  args.per_sequence = table.per_sequence;
  args.positions = rows.positions;
  args.sequences = rows.sequences;
  const int heads = call.heads + 2 * cache.kv_heads;
  const LaunchShape shape{
      dim3(static_cast<unsigned>((heads + kWarps - 1) / kWarps), static_cast<unsigned>(call.m)),
      dim3(kWarps * 32)};
  launch("rope", rope_kernel, shape, stream, args);
}

}  // namespace walsh::cuda
