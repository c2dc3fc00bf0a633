// Computes the delta rule for prompts, in consecutive chunks of 32 rows as matrix products
// (kernels/ops.h, DeltaState). A block keeps some columns of one value head's state in shared
// memory; columns are independent. With G_t, the sum of the logarithms of the decays of the chunk's
// rows up to t,
//   u_t = strength_t (v_t - e^G_t S^T k_t - sum over j < t of e^(G_t - G_j) (k_t k_j) u_j),
//   o_t = e^G_t S^T q_t + sum over j <= t of e^(G_t - G_j) (q_t k_j) u_j,
// and after the chunk S <- e^G S + sum over j of e^(G - G_j) k_j u_j^T. In an additive net, u_t =
// strength_t v_t, and o_t has a multiple of v_t added.
#include <string>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/delta/delta.h"
#include "kernels/cuda/dynamic_shared.cuh"
#include "kernels/cuda/launch.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

constexpr int kGroups = 16;  // Each group of threads has every sixteenth row of a chunk.
constexpr int kThreads = kGroups * kDeltaColumns;
constexpr int kOwnRows = kDeltaRows / kGroups;
static_assert(kDeltaColumns == 32 && kDeltaRows == 32, "a warp has a row's columns");

// Points to the shared memory of a block (ChunkLayout).
struct Chunk {
  float *state, *keys, *queries;
  // Its shape is [row][j]; it is strength e^(G - G_j) (k k_j) for j < row.
  float* seen;
  // Its shape is [row][j]; it is e^(G - G_j) (q k_j) for j <= row.
  float* weights;
  // Its shape is [row][column]; it is first the right-hand side, then u.
  float* updates;
  float *sums, *strengths, *factors;  // They are G, strength, e^(G_last - G) of each row.
  int stride;

  __device__ Chunk(float* memory, int key_dim) {
    const ChunkLayout l = chunk_layout(key_dim);
    state = memory + l.state;
    keys = memory + l.keys;
    queries = memory + l.queries;
    seen = memory + l.seen;
    weights = memory + l.weights;
    updates = memory + l.updates;
    sums = memory + l.scalars;
    strengths = sums + kDeltaRows;
    factors = strengths + kDeltaRows;
    stride = l.stride;
  }
};

// Says which part of the work a block and a thread have.
struct Place {
  int head, column, lane, group;
  bool inside;  // It says whether the thread's column exists.

  __device__ explicit Place(const DeltaDims& d)
      : head(static_cast<int>(blockIdx.y)),
        lane(static_cast<int>(threadIdx.x % 32)),
        group(static_cast<int>(threadIdx.x / 32)) {
    column = static_cast<int>(blockIdx.x) * kDeltaColumns + lane;
    inside = column < d.value_dim;
  }
};

// Holds a thread's part of the keys, queries and values of rows [first, first + rows), and in the
// first warp their decays and strengths. It is loaded while the previous chunk is computed. Missing
// rows of a chunk have no effect.
struct NextChunk {
  static constexpr int kEach = kDeltaRows * kMostDeltaDim / kThreads;
  float key[kEach], query[kEach], value[kOwnRows], decay = 0, strength = 0;

  __device__ __forceinline__ void load(const DeltaCall& call, const Place& p, int64_t first,
                                       int64_t end) {
    const DeltaDims& d = call.dims;
    const int rows = static_cast<int>(end - first < kDeltaRows ? end - first : kDeltaRows);
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int i = static_cast<int>(threadIdx.x) + e * kThreads, row = i / d.key_dim;
      key[e] = query[e] = 0;
      if (row >= rows) continue;
      const float* x = call.channels + (first + row) * d.channels() + (i - row * d.key_dim);
      key[e] = x[d.key_of(p.head)];
      query[e] = x[d.query_of(p.head)];
    }
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      const int row = p.group + kGroups * i;
      value[i] = 0;
      if (row < rows && p.inside)
        value[i] = call.channels[(first + row) * d.channels() + d.value_of(p.head) + p.column];
    }
    decay = strength = 0;
    if (p.group != 0 || p.lane >= rows) return;
    decay = call.decay[(first + p.lane) * d.value_heads + p.head];
    strength = call.strength[(first + p.lane) * d.value_heads + p.head];
  }

  __device__ __forceinline__ void store(const Place& p, const Chunk& s, int key_dim) const {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int i = static_cast<int>(threadIdx.x) + e * kThreads, row = i / key_dim;
      if (row >= kDeltaRows) break;
      const int at = row * s.stride + i - row * key_dim;
      s.keys[at] = key[e];
      s.queries[at] = query[e];
    }
    if (p.group != 0) return;
    float sum = decay;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const float before = __shfl_up_sync(~0u, sum, distance);
      if (p.lane >= distance) sum += before;
    }
    s.sums[p.lane] = sum;
    s.strengths[p.lane] = strength;
    s.factors[p.lane] = expf(__shfl_sync(~0u, sum, 31) - sum);
  }
};

__device__ __forceinline__ float4 four(const float* p) {
  return *reinterpret_cast<const float4*>(p);
}

__device__ __forceinline__ float dot4(const float4& a, const float4& b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

// Multiplies a chunk's keys and queries with its keys. A lane multiplies its key with the rows of
// its group. An additive net does not need the products of keys with keys.
template <bool Additive>
__device__ void multiply_keys(const Place& p, const Chunk& s, int key_dim) {
  float seen[kOwnRows] = {}, weight[kOwnRows] = {};
  for (int column = 0; column < key_dim; column += 4) {
    const float4 key = four(s.keys + p.lane * s.stride + column);
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      const int row = p.group + kGroups * i;
      if constexpr (!Additive) seen[i] = dot4(four(s.keys + row * s.stride + column), key, seen[i]);
      weight[i] = dot4(four(s.queries + row * s.stride + column), key, weight[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) {
    const int row = p.group + kGroups * i, j = p.lane;
    const float decay = j <= row ? expf(s.sums[row] - s.sums[j]) : 0.0f;
    if constexpr (!Additive)
      s.seen[row * kChunkStride + j] = j < row ? s.strengths[row] * (decay * seen[i]) : 0.0f;
    s.weights[row * kChunkStride + j] = j <= row ? decay * weight[i] : 0.0f;
  }
}

// Multiplies the group's rows with the state before the chunk. This gives the first part of the
// results, with `skip` times the values, and in shared memory the right-hand sides of the updates.
template <bool Additive>
__device__ void multiply_state(const Place& p, const Chunk& s, int key_dim, float skip,
                               const float (&value)[kOwnRows], float (&result)[kOwnRows]) {
  float seen[kOwnRows] = {};
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i)
    result[i] = 0;
  for (int r = 0; r < key_dim; r += 4) {
    const float* state = s.state + r * kDeltaColumns + p.lane;
    const float4 column = make_float4(state[0], state[kDeltaColumns], state[2 * kDeltaColumns],
                                      state[3 * kDeltaColumns]);
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      const int row = p.group + kGroups * i;
      if constexpr (!Additive) seen[i] = dot4(four(s.keys + row * s.stride + r), column, seen[i]);
      result[i] = dot4(four(s.queries + row * s.stride + r), column, result[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) {
    const int row = p.group + kGroups * i;
    const float decay = expf(s.sums[row]);
    s.updates[row * kChunkStride + p.lane] = s.strengths[row] * (value[i] - decay * seen[i]);
    result[i] = Additive ? fmaf(skip, value[i], decay * result[i]) : decay * result[i];
  }
}

// Solves the triangular system with one warp, one column per lane.
__device__ void solve(const Place& p, const Chunk& s) {
  float u[kDeltaRows];
#pragma unroll
  for (int row = 0; row < kDeltaRows; ++row) {
    float sum[4] = {};
#pragma unroll
    for (int j = 0; j < row; j += 4) {
      const float4 a = four(s.seen + row * kChunkStride + j);
      sum[0] = fmaf(a.x, u[j], sum[0]);
      if (j + 1 < row) sum[1] = fmaf(a.y, u[j + 1], sum[1]);
      if (j + 2 < row) sum[2] = fmaf(a.z, u[j + 2], sum[2]);
      if (j + 3 < row) sum[3] = fmaf(a.w, u[j + 3], sum[3]);
    }
    u[row] = s.updates[row * kChunkStride + p.lane] - ((sum[0] + sum[1]) + (sum[2] + sum[3]));
  }
  // Writing results only at the end lets all loads be issued early.
#pragma unroll
  for (int row = 0; row < kDeltaRows; ++row)
    s.updates[row * kChunkStride + p.lane] = u[row];
}

// Adds the second part of the results.
__device__ void add_updates(const Place& p, const Chunk& s, float (&result)[kOwnRows]) {
#pragma unroll 2
  for (int j = 0; j < kDeltaRows; j += 4) {
    const float* updates = s.updates + j * kChunkStride + p.lane;
    const float4 u = make_float4(updates[0], updates[kChunkStride], updates[2 * kChunkStride],
                                 updates[3 * kChunkStride]);
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i)
      result[i] = dot4(four(s.weights + (p.group + kGroups * i) * kChunkStride + j), u, result[i]);
  }
}

// Computes the state after the chunk. A thread takes four neighbouring rows of its column at a
// time.
__device__ void advance(const Place& p, const Chunk& s, int key_dim) {
  const float decay = expf(s.sums[kDeltaRows - 1]);
  for (int r = 4 * p.group; r < key_dim; r += 4 * kGroups) {
    float* state = s.state + r * kDeltaColumns + p.lane;
    float sum[4];
#pragma unroll
    for (int e = 0; e < 4; ++e)
      sum[e] = decay * state[e * kDeltaColumns];
#pragma unroll 4
    for (int j = 0; j < kDeltaRows; ++j) {
      const float u = s.factors[j] * s.updates[j * kChunkStride + p.lane];
      const float4 key = four(s.keys + j * s.stride + r);
      sum[0] = fmaf(key.x, u, sum[0]);
      sum[1] = fmaf(key.y, u, sum[1]);
      sum[2] = fmaf(key.z, u, sum[2]);
      sum[3] = fmaf(key.w, u, sum[3]);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e)
      state[e * kDeltaColumns] = sum[e];
  }
}

// Computes some columns of a state over all rows. The grid spans columns of a state in x, and value
// heads in y.
template <bool Additive>
__global__ void __launch_bounds__(kThreads)
    rows_kernel(const __grid_constant__ DeltaCall call, const __grid_constant__ DeltaRange range) {
  WALSH_DYNAMIC_SHARED(float, memory);
  allow_next_kernel();
  wait_previous_kernel();
  const DeltaDims& d = call.dims;
  const Place p(d);
  const Chunk s(memory, d.key_dim);
  float* state = call.memory.slots + range.slot * call.memory.slot_floats + call.memory.states_at +
                 int64_t{p.head} * d.key_dim * d.value_dim + p.column;
  const bool fresh = range.position == 0;
  for (int r = p.group; r < d.key_dim; r += kGroups)
    s.state[r * kDeltaColumns + p.lane] =
        p.inside && !fresh ? state[int64_t{r} * d.value_dim] : 0.0f;
  const float skip = Additive ? call.skip[p.head] : 0.0f;
  NextChunk next;
  next.load(call, p, range.begin, range.end);
  for (int64_t first = range.begin; first < range.end; first += kDeltaRows) {
    next.store(p, s, d.key_dim);
    __syncthreads();
    float result[kOwnRows];
    multiply_keys<Additive>(p, s, d.key_dim);
    multiply_state<Additive>(p, s, d.key_dim, skip, next.value, result);
    next.load(call, p, first + kDeltaRows, range.end);
    __syncthreads();
    if constexpr (!Additive) {
      if (p.group == 0) solve(p, s);
      __syncthreads();
    }
    add_updates(p, s, result);
    advance(p, s, d.key_dim);
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      const int64_t row = first + p.group + kGroups * i;
      if (row < range.end && row >= range.first_written && p.inside)
        call.out[row * d.value_width() + p.head * d.value_dim + p.column] = result[i];
    }
    __syncthreads();  // The next chunk is written only after this.
  }
  for (int r = p.group; r < d.key_dim; r += kGroups)
    if (p.inside) state[int64_t{r} * d.value_dim] = s.state[r * kDeltaColumns + p.lane];
}

}  // namespace

void delta_rows(const DeltaCall& call, const DeltaRange& range, Stream stream) {
  if (range.begin >= range.end) return;
  check_delta(call.dims);
  const DeltaDims& d = call.dims;
  const size_t shared = static_cast<size_t>(chunk_layout(d.key_dim).floats) * sizeof(float);
  if (shared > current_device().shared_bytes) {
    throw Error(ErrorCode::limit, "GPU delta net",
                "heads of " + std::to_string(d.key_dim) + " values need " + std::to_string(shared) +
                    " bytes of shared memory");
  }
  launch("delta rule of a prompt", d.additive ? rows_kernel<true> : rows_kernel<false>,
         {dim3(static_cast<unsigned>((d.value_dim + kDeltaColumns - 1) / kDeltaColumns),
               static_cast<unsigned>(d.value_heads)),
          dim3(kThreads), shared},
         stream, call, range);
}

}  // namespace walsh::cuda
