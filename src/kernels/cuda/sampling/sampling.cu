// Prepares sampling on the host.
#include "kernels/cuda/sampling/sampling.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/checked.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/sampling/kernels.cuh"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

int64_t slices(int64_t vocab) {
  return ceil_div(vocab, kSlice);
}

// Returns how many slices a block goes through, so that the blocks of many rows run at once. What
// a block does before and after its slices takes longer than a slice.
int block_slices(int64_t all_slices) {
  constexpr int64_t kBlocksAtOnce = 2;  // By its registers a multiprocessor runs this many.
  const int64_t each = ceil_div(all_slices, kBlocksAtOnce * current_device().multiprocessors);
  return static_cast<int>(std::min<int64_t>(each, kMostSlices));
}

// Holds the offsets of the parts of the scratch memory.
struct Layout {
  uint64_t rows, bins, ranks, sums, keys, bytes;

  Layout(int64_t max_m, int64_t vocab) {
    const auto m = static_cast<uint64_t>(max_m);
    uint64_t at = 0;
    const auto take = [&](uint64_t size) {
      const uint64_t begin = at;
      at += (size + 255) / 256 * 256;
      return begin;
    };
    rows = take(m * sizeof(SampleRow));
    bins = take(m * kBins * sizeof(uint32_t));
    ranks = take(m * kCandidates * sizeof(unsigned long long));
    sums = take(m * static_cast<uint64_t>(slices(vocab)) * sizeof(SliceSum));
    keys = take(m * static_cast<uint64_t>(vocab) * sizeof(uint32_t));
    bytes = at;
  }
};

__global__ void take_chosen_kernel(int32_t* tokens, const int32_t* sequences, const int32_t* next,
                                   int m) {
  allow_next_kernel();
  wait_previous_kernel();
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row < m && tokens[row] < 0) tokens[row] = next[sequences[row]];
}

}  // namespace

SampleScratch::SampleScratch(int64_t max_m, int64_t vocab)
    : data_(bytes(max_m, vocab), true), max_m_(max_m), vocab_(vocab) {}

uint64_t SampleScratch::bytes(int64_t max_m, int64_t vocab) {
  return Layout(max_m, vocab).bytes;
}

SampleState sample_state(const SamplerOptions& options, int64_t vocab, int32_t length) {
  SampleState state;
  state.options = options;
  if (options.top_k >= vocab) state.options.top_k = 0;
  state.log_min_p = options.min_p > 0 ? std::log(static_cast<double>(options.min_p)) : 0.0;
  state.greedy = options.temperature == 0;
  state.penalty = options.repeat_penalty != 1 && options.repeat_last_n != 0;
  state.sum_all = !state.greedy && state.options.top_k == 0 && options.top_p < 1;
  state.length = length;
  state.random = options.seed;
  return state;
}

void sample(const SampleCall& call, const SampleScratch& scratch, Stream stream) {
  if (call.m == 0) return;
  if (call.vocab > kMaxSampledVocab || call.vocab != scratch.vocab() || call.m > scratch.max_m()) {
    throw Error(ErrorCode::internal, "GPU sampling",
                std::to_string(call.m) + " rows of " + std::to_string(call.vocab) + " logits");
  }
  SampleArgs args;
  args.logits = call.logits;
  args.ldl = call.ldl;
  args.vocab = static_cast<int>(call.vocab);
  args.where = call.rows;
  args.states = call.states;
  args.history = call.history;
  args.history_stride = call.history_stride;
  args.next = call.next;
  args.host = call.host;
  const Layout layout(scratch.max_m(), scratch.vocab());
  std::byte* data = scratch.data();
  args.rows = reinterpret_cast<SampleRow*>(data + layout.rows);
  args.bins = reinterpret_cast<uint32_t*>(data + layout.bins);
  args.ranks = reinterpret_cast<unsigned long long*>(data + layout.ranks);
  args.sums = reinterpret_cast<SliceSum*>(data + layout.sums);
  args.keys = reinterpret_cast<uint32_t*>(data + layout.keys);
  args.slices = static_cast<int>(slices(call.vocab));
  args.block_slices = block_slices(args.slices * call.m);
  const LaunchShape shape{dim3(static_cast<unsigned>(ceil_div(args.slices, args.block_slices)),
                               static_cast<unsigned>(call.m)),
                          dim3(kSampleThreads)};
  launch("sampling: scan", sample_scan_kernel, shape, stream, args);
  if (call.draws) launch("sampling: choose", sample_choose_kernel, shape, stream, args);
}

void take_chosen(int32_t* tokens, const int32_t* sequences, const int32_t* next, int64_t m,
                 Stream stream) {
  if (m == 0) return;
  const LaunchShape shape{dim3(static_cast<unsigned>((m + kSampleThreads - 1) / kSampleThreads)),
                          dim3(kSampleThreads)};
  launch("chosen tokens", take_chosen_kernel, shape, stream, tokens, sequences, next,
         static_cast<int>(m));
}

}  // namespace walsh::cuda
