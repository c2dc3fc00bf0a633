// Prepares and rotates queries, keys and values and appends them to a coded cache: one warp per
// head.
#include <cuda_fp16.h>

#include <string>

#include "cache/cuda/coded_cache.h"
#include "kernels/cuda/async.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows/rope.cuh"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

constexpr int kWarps = 4;

struct KeepArgs {
  RopeCall call;
  CodedView cache;
  RowPlaces rows;
  FreshRows fresh;  // without keys, rows go to the rings
  int turned;       // pairs of a head that rope rotates
};

// A head as columns 32 r + lane.
template <int Dim>
struct Columns {
  float v[Dim / 32];

  // If all pairs are rotated, or none, the columns are already where they are needed: the first
  // half, then the second. Otherwise they pass through shared memory.
  __device__ Columns(const Pairs& x, const HeadPairs& pairs, float* shared, int lane) {
    if (pairs.turned == 0 || pairs.turned == pairs.half) {
#pragma unroll
      for (int j = 0; j < Dim / 64; ++j) {
        v[j] = x.a[j];
        v[j + Dim / 64] = x.b[j];
      }
      return;
    }
    store_pairs(x, shared, pairs, lane, [](float value) { return value; });
    __syncwarp();
#pragma unroll
    for (int r = 0; r < Dim / 32; ++r)
      v[r] = shared[32 * r + lane];
  }

  // As walsh::Rotator, with the same order of additions.
  __device__ void rotate(int block, const float* factors, int lane) {
    if (block == 0) return;
#pragma unroll
    for (int r = 0; r < Dim / 32; ++r)
      v[r] *= factors[32 * r + lane];
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
#pragma unroll
      for (int r = 0; r < Dim / 32; ++r) {
        const float other = __shfl_xor_sync(~0u, v[r], distance);
        v[r] = (lane & distance) != 0 ? other - v[r] : v[r] + other;
      }
    }
    if (block == 32) return;
#pragma unroll
    for (int step = 1; step < Dim / 32; step *= 2) {
#pragma unroll
      for (int r = 0; r < Dim / 32; ++r) {
        if ((r & step) != 0) continue;
        const float a = v[r], b = v[r + step];
        v[r] = a + b;
        v[r + step] = a - b;
      }
    }
  }

  template <typename T, typename Convert>
  __device__ void store(T* to, int lane, Convert convert) const {
#pragma unroll
    for (int r = 0; r < Dim / 32; ++r)
      to[32 * r + lane] = convert(v[r]);
  }
};

// Where the key or value of a row and head is written.
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

// Grid: x over heads (of queries, then keys, then values), y over rows.
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
    Columns<Dim> columns(v[0], pairs, heads[warp], lane);
    columns.rotate(cache.keys.block, cache.keys.factors, lane);
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
  Columns<Dim> columns(v[0], pairs, heads[warp], lane);
  const CodedSide& side = key ? cache.keys : cache.values;
  columns.rotate(side.block, side.factors, lane);
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
  if (call.k == nullptr) args.cache.kv_heads = 0;  // there are only queries
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
