// Prepares and rotates queries, keys and values and appends them to a coded cache. A warp works on
// one head.
#include <cuda_fp16.h>

#include <string>

#include "cache/cuda/coded_cache.h"
#include "kernels/cuda/async.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows/head_columns.cuh"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

constexpr int kWarps = 4;

struct KeepArgs {
  RopeCall call;
  CodedView cache;
  RowPlaces rows;
  FreshRows fresh;  // Without keys, rows go to the rings.
  int turned;       // Rope turns this many pairs of a head.
};

// Returns where the key or value of a row and head is written.
__device__ __forceinline__ uint16_t* place_of(const KeepArgs& args, bool key, int head,
                                              int64_t sequence, int position) {
  const CodedView& cache = args.cache;
  if (args.fresh.keys != nullptr) {
    const int64_t row = head * args.fresh.capacity + position - args.fresh.first;
    return (key ? args.fresh.keys : args.fresh.values) + row * cache.head_dim;
  }
  const int64_t row = (sequence * cache.kv_heads + head) * cache.ring + position % cache.ring;
  return (key ? cache.keys : cache.values).ring + row * cache.head_dim;
}

// Prepares one head of a row per warp. The grid spans heads in x (of queries, then keys, then
// values) and rows in y.
template <int Dim>
__global__ void __launch_bounds__(kWarps * 32) keep_kernel(const __grid_constant__ KeepArgs args) {
  __shared__ float heads[kWarps][Dim];
  const RopeCall& call = args.call;
  const CodedView& cache = args.cache;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  int head = static_cast<int>(blockIdx.x) * kWarps + warp;
  allow_next_kernel();
  wait_previous_kernel();
  if (head >= call.heads + 2 * cache.kv_heads) return;
  const int64_t row = blockIdx.y;
  const int position = args.rows.positions[row];
  const int turned = args.turned;
  const HeadPairs pairs{Dim / 2, turned};
  const Pairs angles = load_angles(call.cos + int64_t{position} * turned,
                                   call.sin + int64_t{position} * turned, turned, lane);
  if (head < call.heads) {
    float* q = call.q + row * call.ldq + head * Dim;
    Pairs v[1] = {load_pairs(q, pairs, lane)};
    prepare_heads(v, query_rule(call), angles, position, pairs, lane);
    HeadColumns<Dim> columns(v[0], pairs, heads[warp], lane);
    columns.rotate(cache.keys.block, lane,
                   [&](int r) { return cache.keys.factors[32 * r + lane]; });
    columns.store(q, lane, [](float x) { return x; });
    return;
  }
  head -= call.heads;
  const bool key = head < cache.kv_heads;
  if (!key) head -= cache.kv_heads;
  const float* from = key ? call.k + row * call.ldk : call.v + row * call.ldv;
  Pairs v[1] = {load_pairs(from + head * Dim, pairs, lane)};
  if (key) {
    prepare_heads(v, key_rule(call), angles, position, pairs, lane);
  } else if (call.v_norm != nullptr) {
    prepare_heads(v, value_rule(call), angles, position, pairs, lane, false);
  }
  HeadColumns<Dim> columns(v[0], pairs, heads[warp], lane);
  const CodedSide& side = key ? cache.keys : cache.values;
  columns.rotate(side.block, lane, [&](int r) { return side.factors[32 * r + lane]; });
  columns.store(place_of(args, key, head, args.rows.sequences[row], position), lane,
                [&](float x) { return __half_as_ushort(kept_half(x, key)); });
}

}  // namespace

void keep_rows(const RopeCall& call, const CodedView& cache, const RowPlaces& rows,
               const FreshRows* fresh, Stream stream) {
  if (call.m == 0) return;
  if (call.m > 65535) {
    throw Error(ErrorCode::internal, "GPU cache", std::to_string(call.m) + " rows in one launch");
  }
  KeepArgs args{call, cache, rows, fresh != nullptr ? *fresh : FreshRows{},
                turned_pairs(call, cache.head_dim)};
  if (call.k == nullptr) args.cache.kv_heads = 0;  // There are only queries.
  const int heads = call.heads + 2 * args.cache.kv_heads;
  const LaunchShape shape{
      dim3(static_cast<unsigned>((heads + kWarps - 1) / kWarps), static_cast<unsigned>(call.m)),
      dim3(kWarps * 32)};
  const auto kernel = cache.head_dim == 64    ? keep_kernel<64>
                      : cache.head_dim == 128 ? keep_kernel<128>
                                              : keep_kernel<256>;
  launch("cache rows", kernel, shape, stream, args);
}

}  // namespace walsh::cuda
