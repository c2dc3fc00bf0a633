// Performs the steps of a warp in decode attention over fp16 pages, 16 positions at once.
//
// The tensor cores have time to spare, so queries and softmax weights are sums of two halves each,
// and nothing but the cache is rounded to fp16.
#pragma once

#include "kernels/cuda/attention/decode.cuh"

namespace walsh::cuda {

// Queries are operand b, each split into near + 2^-11 rest. The factor makes the rest as large as
// `near`, and so as exact for small numbers.
inline constexpr float kRestTimes = 2048;

template <int Dim>
struct SplitQueries {
  uint32_t near[Dim / 16][2], rest[Dim / 16][2];

  __device__ __forceinline__ uint4 get(int k) const {
    return make_uint4(near[k][0], near[k][1], rest[k][0], rest[k][1]);
  }
  __device__ __forceinline__ void set(int k, const uint4& v) {
    near[k][0] = v.x, near[k][1] = v.y, rest[k][0] = v.z, rest[k][1] = v.w;
  }
};

// Holds the queries in shared memory, where a lane reads what it has written.
struct SharedQueries {
  uint4* lane;  // Its shape is [Dim / 16][32].

  __device__ __forceinline__ uint4 get(int k) const { return lane[32 * k]; }
  __device__ __forceinline__ void set(int k, const uint4& v) const { lane[32 * k] = v; }
};

// Divides the positions of a block among steps.
template <int Unit>
struct PagePart : DecodePart {
  int first_unit, last_unit;

  explicit __device__ __forceinline__ PagePart(const DecodeArgs& args) : DecodePart(args) {
    const int first = begin / Unit;
    const int units = (end + Unit - 1) / Unit - first;
    active = min(static_cast<int>(gridDim.x), units);
    const int64_t split = blockIdx.x;
    first_unit = first + static_cast<int>(split * units / max(active, 1));
    last_unit = first + static_cast<int>((split + 1) * units / max(active, 1));
  }
};

// Holds what readers of pages share: their part of the work, and where its results go.
template <typename Arguments, int Unit>
class PageResults {
 public:
  using Args = Arguments;

  __device__ __forceinline__ const DecodePart& part() const { return part_; }

  // Stores four sums of a head of the part, which have to be multiplied by a factor.
  __device__ __forceinline__ void take(int head, int column, const float4& sum,
                                       float factor) const {
    float* out = a_.out + part_.row * a_.ldo + part_.first_head * a_.head_dim;
    store_scaled(out + head * a_.head_dim + column, sum, factor);
  }
  // Is called when the row's results are complete; nothing is left to do here.
  __device__ __forceinline__ void finish() const {}

 protected:
  explicit __device__ __forceinline__ PageResults(const Args& args) : a_(args), part_(args) {}

  const Args& a_;
  const PagePart<Unit> part_;
};

// Loads a part of the queries as the operands of Dim columns from operand `First` on. It is `count`
// columns of every head, which begin at `from` and are `stride` floats from head to head.
template <int Dim, int First, typename Queries>
__device__ __forceinline__ void load_queries(const float* from, int stride, int heads, int count,
                                             int lane, Queries& q) {
  const int head = lane / 4, column = 2 * (lane % 4);
#pragma unroll
  for (int k = 0; k < Dim / 16; ++k) {
    uint32_t near[2], rest[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int c = 16 * k + 8 * i + column;
      float2 v = make_float2(0, 0);
      if (head < heads && c < count) v = *reinterpret_cast<const float2*>(from + head * stride + c);
      near[i] = pack_halves(v.x, v.y);
      rest[i] = pack_rests(near[i], v.x, v.y, kRestTimes);
    }
    q.set(First + k, make_uint4(near[0], near[1], rest[0], rest[1]));
  }
}

// Holds the logits of 16 positions; separate accumulators keep chains of products short.
struct SplitLogits {
  float near[2][4] = {}, rest[2][4] = {};

  __device__ __forceinline__ float get(int e) const {
    return __fmaf_rn(rest[0][e] + rest[1][e], 1 / kRestTimes, near[0][e] + near[1][e]);
  }
};

// Adds the products of a tile of keys (Dim columns) with the queries from operand `First` on.
template <int Dim, int First, typename Queries>
__device__ __forceinline__ void multiply_keys(const Queries& q, uint32_t keys, int lane,
                                              SplitLogits& s) {
  using Layout = TileLayout<Dim>;
  const int matrix = lane / 8, r = lane % 8;
  const uint32_t key_row = keys + Layout::offset(r + 8 * (matrix & 1), matrix >> 1);
#pragma unroll
  for (int k = 0; k < Dim / 16; ++k) {
    uint32_t a[4];
    load_matrices(a, key_row ^ Layout::step(k));
    const uint4 b = q.get(First + k);
    mma_f16(s.near[k % 2], a, b.x, b.y);
    mma_f16(s.rest[k % 2], a, b.z, b.w);
  }
}

// Adds the values of 16 positions, weighed by their logits. Positions in [low, high) are visible.
template <int Dim, bool Capped>
__device__ __forceinline__ void add_values(const AttentionRule& rule, const SplitLogits& s,
                                           uint32_t values, int low, int high, int lane,
                                           Running<Dim>& run) {
  using Layout = TileLayout<Dim>;
  const int matrix = lane / 8, r = lane % 8;
  float logits[4];
#pragma unroll
  for (int e = 0; e < 4; ++e)
    logits[e] = s.get(e);
  cap_logits<Capped>(rule, logits);
  uint32_t b[2], b_rest[2];
  weigh_tile<Dim, false>(logits, low, high, rule.scale, lane, run, 0, [&](const float(&p)[4]) {
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

}  // namespace walsh::cuda
