// Runs the second pass of sampling. Blocks gather candidates, and the last block sorts them and
// draws. If there are too many to sort, it searches their ranks digit by digit.
#include "kernels/cuda/sampling/kernels.cuh"

namespace walsh::cuda {
namespace {

constexpr int kDigitBits = 10, kDigits = 1 << kDigitBits;
constexpr int kRankBits = 32 + kIdBits;
static_assert(kRankBits % kDigitBits == 0);
// The digit search uses integer weights, so that sums do not depend on the order. They are summed
// as three parts, whose sums over a vocabulary fit into 32 bits.
constexpr int kPartBits = 32 - kIdBits, kParts = 3;
constexpr double kWeightUnit = static_cast<double>(1ull << (kPartBits * kParts - 1));

struct ChooseMemory {
  union {
    unsigned long long rank[kCandidates];
    uint32_t digits[kParts][kDigits];
  };
  double sums[kSampleWarps];
  unsigned long long totals[kSampleWarps];
  unsigned long long above;
  int digit;
  int first;
};

// Sorts descending in shared memory. `count` is padded to a power of two with zeros.
__device__ void sort_ranks(unsigned long long* rank, int count) {
  int padded = 32;
  while (padded < count)
    padded *= 2;
  for (int i = count + static_cast<int>(threadIdx.x); i < padded; i += kSampleThreads)
    rank[i] = 0;
  for (int size = 2; size <= padded; size *= 2) {
    for (int distance = size / 2; distance > 0; distance /= 2) {
      __syncthreads();
      for (int p = static_cast<int>(threadIdx.x); p < padded / 2; p += kSampleThreads) {
        const int i = 2 * p - (p & (distance - 1)), j = i + distance;
        const unsigned long long a = rank[i], b = rank[j];
        if ((a < b) == ((i & size) == 0)) {
          rank[i] = b;
          rank[j] = a;
        }
      }
    }
  }
  __syncthreads();
}

// Sorts few ranks. Each thread counts the ranks above its own.
__device__ void sort_few_ranks(unsigned long long* rank, int count) {
  const int i = static_cast<int>(threadIdx.x);
  __syncthreads();
  const unsigned long long mine = i < count ? rank[i] : 0;
  int place = 0;
#pragma unroll 8
  for (int j = 0; j < count; ++j)
    place += rank[j] > mine;
  __syncthreads();
  if (i < count) rank[place] = mine;
  __syncthreads();
}

// Returns the first i < count with weight(0) + .. + weight(i) above `share` of `total` (if `total`
// is negative, of the sum of all weights), or equal to it if `at`. Returns `count` if there is
// none.
template <typename Weight>
__device__ int find_share(ChooseMemory& memory, int count, double total, double share, bool at,
                          Weight weight) {
  const int each = (count + kSampleThreads - 1) / kSampleThreads;
  const int begin = static_cast<int>(threadIdx.x) * each, end = min(count, begin + each);
  double sum = 0;
  for (int i = begin; i < end; ++i)
    sum += weight(i);
  double before = block_prefix(sum, memory.sums);
  if (total < 0) total = block_sum(sum, memory.sums);
  __syncthreads();
  if (threadIdx.x == 0) memory.first = count;
  __syncthreads();
  for (int i = begin; i < end; ++i) {
    before += weight(i);
    if (before > share * total || (at && before == share * total)) {
      atomicMin(&memory.first, i);
      break;
    }
  }
  __syncthreads();
  return memory.first;
}

// Chooses among few candidates, which are in memory.rank.
__device__ int choose_sorted(const SampleArgs& args, const SampleState& rules, int64_t row,
                             int count, double uniform, ChooseMemory& memory) {
  const SamplerOptions& o = rules.options;
  if (count <= kSampleThreads) {
    sort_few_ranks(memory.rank, count);
  } else {
    sort_ranks(memory.rank, count);
  }
  const auto logit = [&](int i) { return static_cast<double>(logit_of_rank(memory.rank[i])); };
  const double best = logit(0);
  if (o.top_k > 0) count = min(count, o.top_k);
  if (o.top_p < 1) {
    const double total = rules.sum_all ? args.rows[row].total : -1.0;
    const int last = find_share(memory, count, total, static_cast<double>(o.top_p), true,
                                [&](int i) { return exp(logit(i) - best); });
    count = min(count, last + 1);
  }
  if (o.min_p > 0) {
    const double least = best + rules.log_min_p;
    int kept = 0;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kSampleThreads)
      kept += i == 0 || logit(i) >= least;
    count = static_cast<int>(block_sum(static_cast<unsigned long long>(kept), memory.totals));
  }
  const double temperature = static_cast<double>(o.temperature);
  const int chosen = find_share(memory, count, -1.0, uniform, false,
                                [&](int i) { return exp((logit(i) - best) / temperature); });
  return id_of_rank(memory.rank[min(chosen, count - 1)]);
}

// Returns the rank at which the sum of weights, from the highest rank down, exceeds `share` of the
// total (share < 0: reaches `wanted`). weight(rank) is an integer below 2^(kPartBits * kParts).
template <typename Weight>
__device__ unsigned long long search_ranks(const SampleArgs& args, int64_t row, double share,
                                           unsigned long long wanted, ChooseMemory& memory,
                                           Weight weight) {
  constexpr int kEach = kDigits / kSampleThreads;
  const uint32_t* keys = args.keys + row * args.vocab;
  unsigned long long prefix = 0;
  for (int shift = kRankBits - kDigitBits; shift >= 0; shift -= kDigitBits) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kParts * kDigits; i += kSampleThreads)
      memory.digits[0][i] = 0;
    __syncthreads();
    for (int id = static_cast<int>(threadIdx.x); id < args.vocab; id += kSampleThreads) {
      const unsigned long long rank = rank_of(keys[id], id);
      if (rank >> (shift + kDigitBits) != prefix) continue;
      const unsigned long long w = weight(rank);
      const auto digit = static_cast<int>(rank >> shift & (kDigits - 1));
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const auto bits = static_cast<uint32_t>(w >> (part * kPartBits) & ((1u << kPartBits) - 1));
        if (bits) atomicAdd(&memory.digits[part][digit], bits);
      }
    }
    __syncthreads();
    unsigned long long each[kEach], sum = 0;
    const int top = kDigits - 1 - static_cast<int>(threadIdx.x) * kEach;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      each[i] = 0;
      for (int part = 0; part < kParts; ++part)
        each[i] += static_cast<unsigned long long>(memory.digits[part][top - i])
                   << (part * kPartBits);
      sum += each[i];
    }
    if (shift == kRankBits - kDigitBits && share >= 0) {
      const auto total = block_sum(sum, memory.totals);
      wanted = static_cast<unsigned long long>(share * static_cast<double>(total)) + 1;
      wanted = min(wanted, total);
    }
    unsigned long long above = block_prefix(sum, memory.totals);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (above < wanted && above + each[i] >= wanted) {
        memory.digit = top - i;
        memory.above = above;
      }
      above += each[i];
    }
    __syncthreads();
    prefix = prefix << kDigitBits | static_cast<unsigned long long>(memory.digit);
    wanted -= memory.above;
  }
  return prefix;
}

// Chooses among any number of candidates.
__device__ int choose_any(const SampleArgs& args, const SampleState& rules, int64_t row,
                          double uniform, ChooseMemory& memory) {
  const SamplerOptions& o = rules.options;
  const double best = static_cast<double>(logit_of_rank(__ldcg(&args.rows[row].best)));
  unsigned long long cut = 0;  // It is the lowest rank to keep.
  if (o.top_k > 0 && o.top_k < args.vocab) {
    cut = search_ranks(args, row, -1.0, static_cast<unsigned long long>(o.top_k), memory,
                       [](unsigned long long) { return 1ull; });
  }
  const auto weight = [&](unsigned long long rank, double temperature) {
    const double above = static_cast<double>(logit_of_rank(rank)) - best;
    return rank < cut ? 0ull
                      : static_cast<unsigned long long>(
                            __double2ll_rn(exp(above / temperature) * kWeightUnit));
  };
  if (o.top_p < 1) {
    cut = max(cut, search_ranks(args, row, static_cast<double>(o.top_p), 0, memory,
                                [&](unsigned long long rank) { return weight(rank, 1.0); }));
  }
  if (o.min_p > 0) {
    const float least = __double2float_ru(best + rules.log_min_p);
    cut = max(cut, min(rank_of(key_of_logit(least), (1 << kIdBits) - 1), args.rows[row].best));
  }
  return id_of_rank(search_ranks(args, row, uniform, 0, memory, [&](unsigned long long rank) {
    return weight(rank, static_cast<double>(o.temperature));
  }));
}

}  // namespace

// The grid spans slices of the vocabulary in x, of which a block has block_slices, and rows in y.
__global__ void __launch_bounds__(kSampleThreads)
    sample_choose_kernel(const __grid_constant__ SampleArgs args) {
  __shared__ ChooseMemory memory;
  const int64_t row = blockIdx.y;
  allow_next_kernel();
  // This is read before the wait, as in the scan, which does not change it for rows that draw.
  const int64_t sequence = sequence_of(args, row);
  const SampleState& rules = args.states[sequence];
  const bool greedy = rules.greedy;
  wait_previous_kernel();
  if (greedy) return;  // The first pass has chosen already.
  SampleRow& state = args.rows[row];
  const int begin = static_cast<int>(blockIdx.x) * args.block_slices * kSlice;
  const int end = min(begin + args.block_slices * kSlice, args.vocab);
  const uint32_t lowest = state.lowest;
#pragma unroll 4
  for (int base = begin; base < end; base += kSlice) {
    uint32_t key[kPerSampleThread];
    const int first = base + static_cast<int>(threadIdx.x);
#pragma unroll
    for (int j = 0; j < kPerSampleThread; ++j) {
      const int id = first + j * kSampleThreads;
      key[j] = id < end ? args.keys[row * args.vocab + id] : 0;
    }
#pragma unroll
    for (int j = 0; j < kPerSampleThread; ++j) {
      const int id = first + j * kSampleThreads;
      if (id >= end || key[j] < lowest) continue;
      const uint32_t slot = atomicAdd(&state.candidates, 1u);
      if (slot < kCandidates) args.ranks[row * kCandidates + slot] = rank_of(key[j], id);
    }
  }
  if (!last_block(&state.gathered, gridDim.x)) return;

  // All needed values are loaded at once.
  const unsigned long long early = __ldcg(&args.ranks[row * kCandidates + threadIdx.x]);
  const uint32_t count = __ldcg(&state.candidates), finite = __ldcg(&state.finite);
  const unsigned long long best = __ldcg(&state.best);
  // Sums of weights are then infinite, too.
  const bool infinite = finite && isinf(logit_of_rank(best));
  uint64_t random = rules.random;
  const double uniform = next_uniform(random);
  int token = -1;
  if (infinite) {
    token = id_of_rank(best);
  } else if (finite && count <= kCandidates) {
    if (threadIdx.x < count) memory.rank[threadIdx.x] = early;
    for (uint32_t i = threadIdx.x + kSampleThreads; i < count; i += kSampleThreads)
      memory.rank[i] = __ldcg(&args.ranks[row * kCandidates + i]);
    token = choose_sorted(args, rules, row, static_cast<int>(count), uniform, memory);
  } else if (finite) {
    token = choose_any(args, rules, row, uniform, memory);
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  if (finite && !infinite) args.states[sequence].random = random;
  finish_row(args, row, sequence, token);
  state.best = 0;
  state.finite = 0;
  state.candidates = 0;
}

}  // namespace walsh::cuda
