// Runs the first pass of sampling. It applies penalties and finds the best token, a histogram of
// keys, and from that a bound above which all candidates lie.
#include "kernels/cuda/sampling/kernels.cuh"

namespace walsh::cuda {
namespace {

struct ScanMemory {
  uint32_t bins[kBins];
  uint32_t recent[kMostSlices * kSlice / 32];
  double sums[kSampleWarps];
  unsigned long long best[kSampleWarps];
  uint32_t bound;
};

// Marks the block's tokens that the penalty applies to.
__device__ void mark_recent(const SampleArgs& args, int64_t sequence, const SampleState& state,
                            int first, uint32_t* recent) {
  const int length = state.length;
  const int wanted = state.options.repeat_last_n;
  const int begin = wanted < 0 ? 0 : max(0, length - wanted);
  const int32_t* history = args.history + sequence * args.history_stride;
  for (int i = begin + static_cast<int>(threadIdx.x); i < length; i += kSampleThreads) {
    const int token = history[i] - first;
    if (token >= 0 && token < args.block_slices * kSlice)
      atomicOr(&recent[token / 32], 1u << token % 32);
  }
}

__device__ __forceinline__ unsigned long long block_best(unsigned long long best,
                                                         unsigned long long* scratch) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    best = max(best, __shfl_xor_sync(~0u, best, distance));
  __syncthreads();
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = best;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kSampleWarps; ++w)
    best = max(best, scratch[w]);
  return best;
}

// Returns a key above which there are at least top_k tokens (or, if all tokens are candidates,
// those that top_p keeps), at the resolution of the bins. Resets the bins to zero.
__device__ uint32_t bin_bound(const SampleArgs& args, const SampleState& rules, int64_t row,
                              double best, double total, ScanMemory& memory) {
  constexpr int kEach = kBins / kSampleThreads;
  uint32_t* bins = args.bins + row * kBins;
  const int top = kBins - 1 - static_cast<int>(threadIdx.x) * kEach;  // It goes downwards.
  double weight[kEach], sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const uint32_t count = __ldcg(&bins[top - i]);
    bins[top - i] = 0;
    weight[i] = count;
    // This is a lower bound: every token counts with the lowest logit of its bin.
    if (rules.sum_all && count > 0) {
      const float edge = logit_of(static_cast<uint32_t>(top - i) << kBinShift);
      weight[i] *= isnan(edge) ? 0.0 : exp(static_cast<double>(edge) - best);
    }
    sum += weight[i];
  }
  if (threadIdx.x == 0) memory.bound = 0;
  double above = block_prefix(sum, memory.sums);
  // This is slightly more than the share, because sums are rounded.
  const double wanted = rules.sum_all
                            ? total * static_cast<double>(rules.options.top_p) * (1 + 1e-9)
                            : static_cast<double>(rules.options.top_k);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (above < wanted && above + weight[i] >= wanted)
      atomicMax(&memory.bound, static_cast<uint32_t>(top - i) << kBinShift);
    above += weight[i];
  }
  __syncthreads();
  return memory.bound;
}

// Returns the sum of all slices' weights, relative to the row's best logit.
__device__ double total_weight(const SampleArgs& args, int64_t row, double best,
                               ScanMemory& memory) {
  double sum = 0;
  const SliceSum* sums = args.sums + row * args.slices;
  for (int s = static_cast<int>(threadIdx.x); s < args.slices; s += kSampleThreads) {
    const double largest = __ldcg(&sums[s].largest);
    if (largest > -1e300) sum += __ldcg(&sums[s].sum) * exp(largest - best);
  }
  return block_sum(sum, memory.sums);
}

// Loads a thread's logits of the slice that begins with token `first`.
__device__ __forceinline__ void load_logits(const float* logits, int first, int vocab,
                                            float (&v)[kPerSampleThread]) {
#pragma unroll
  for (int j = 0; j < kPerSampleThread; ++j) {
    const int id = first + j * kSampleThreads + static_cast<int>(threadIdx.x);
    v[j] = id < vocab ? logits[id] : -INFINITY;
  }
}

// Stores the sum of a slice's weights, relative to the slice's best logit.
__device__ __forceinline__ void sum_slice(const float (&v)[kPerSampleThread],
                                          unsigned long long best, SliceSum* to,
                                          ScanMemory& memory) {
  const auto largest = static_cast<double>(logit_of_rank(block_best(best, memory.best)));
  double sum = 0;
#pragma unroll
  for (int j = 0; j < kPerSampleThread; ++j)
    if (v[j] > -INFINITY) sum += exp(static_cast<double>(v[j]) - largest);
  sum = block_sum(sum, memory.sums);
  if (threadIdx.x == 0) *to = {sum, largest > -INFINITY ? largest : -1e300};
}

}  // namespace

// The grid spans slices of the vocabulary in x, of which a block has block_slices, and rows in y.
__global__ void __launch_bounds__(kSampleThreads)
    sample_scan_kernel(const __grid_constant__ SampleArgs args) {
  __shared__ ScanMemory memory;
  const int64_t row = blockIdx.y;
  const int first_slice = static_cast<int>(blockIdx.x) * args.block_slices;
  const int end_slice = min(first_slice + args.block_slices, args.slices);
  const int begin = first_slice * kSlice, thread = static_cast<int>(threadIdx.x);
  allow_next_kernel();
  for (int i = thread; i < kBins; i += kSampleThreads)
    memory.bins[i] = 0;
  for (int i = thread; i < args.block_slices * kSlice / 32; i += kSampleThreads)
    memory.recent[i] = 0;
  __syncthreads();
  // The results of the last step are complete before this step's first kernel lets others start;
  // only the logits must be waited for.
  const int64_t sequence = sequence_of(args, row);
  const SampleState& rules = args.states[sequence];
  if (rules.penalty) mark_recent(args, sequence, rules, begin, memory.recent);
  __syncthreads();

  const bool greedy = rules.greedy, sum_all = rules.sum_all;
  const bool bins = rules.options.top_k > 0 ? !greedy : sum_all;
  const float penalty = rules.options.repeat_penalty;
  const float* logits = args.logits + row * args.ldl;
  wait_previous_kernel();
  float next[kPerSampleThread];
  load_logits(logits, begin, args.vocab, next);
  unsigned long long best = 0;
  bool finite = false;
#pragma unroll 1
  for (int slice = first_slice; slice < end_slice; ++slice) {
    float v[kPerSampleThread];
#pragma unroll
    for (int j = 0; j < kPerSampleThread; ++j)
      v[j] = next[j];
    if (slice + 1 < end_slice) load_logits(logits, (slice + 1) * kSlice, args.vocab, next);
    unsigned long long best_of_slice = 0;
#pragma unroll
    for (int j = 0; j < kPerSampleThread; ++j) {
      const int id = slice * kSlice + j * kSampleThreads + thread, slot = id - begin;
      if (id >= args.vocab) break;
      if (isnan(v[j])) v[j] = -INFINITY;
      finite |= isfinite(v[j]);
      if (memory.recent[slot / 32] >> slot % 32 & 1)
        v[j] = v[j] > 0 ? v[j] / penalty : v[j] * penalty;
      const uint32_t key = key_of_logit(v[j]);
      best_of_slice = max(best_of_slice, rank_of(key, id));
      if (!greedy) args.keys[row * args.vocab + id] = key;
      if (bins) atomicAdd(&memory.bins[key >> kBinShift], 1u);
    }
    best = max(best, best_of_slice);
    if (sum_all) sum_slice(v, best_of_slice, &args.sums[row * args.slices + slice], memory);
  }
  best = block_best(best, memory.best);
  SampleRow& state = args.rows[row];
  if (thread == 0) atomicMax(&state.best, best);
  if (__any_sync(~0u, finite) && thread % 32 == 0) atomicOr(&state.finite, 1u);
  if (bins) {
    for (int i = thread; i < kBins; i += kSampleThreads)
      if (memory.bins[i] > 0) atomicAdd(&args.bins[row * kBins + i], memory.bins[i]);
  }

  if (!last_block(&state.scanned, gridDim.x)) return;
  best = __ldcg(&state.best);
  if (greedy) {
    if (thread > 0) return;
    finish_row(args, row, sequence, __ldcg(&state.finite) ? id_of_rank(best) : -1);
    state.best = 0;
    state.finite = 0;
    return;
  }
  const auto largest = static_cast<double>(logit_of_rank(best));
  const double total = sum_all ? total_weight(args, row, largest, memory) : 0.0;
  uint32_t lowest = bins ? bin_bound(args, rules, row, largest, total, memory) : 0;
  if (thread > 0) return;
  // The bound is rounded down, because the exact comparison comes later. If top_p needs the sum of
  // the top_k tokens, all of them must be kept.
  if (rules.options.min_p > 0 && (sum_all || rules.options.top_p >= 1))
    lowest = max(lowest, key_of_logit(__double2float_rd(largest + rules.log_min_p)));
  state.lowest = lowest;
  state.total = total;
}

}  // namespace walsh::cuda
