#include "kernels/cuda/experts/experts.h"

#include <algorithm>
#include <limits>
#include <string>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/dynamic_shared.cuh"
#include "kernels/cuda/experts/expert_sum.cuh"
#include "kernels/cuda/experts/warp_lanes.cuh"
#include "kernels/cuda/launch.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

constexpr int kRouteWarps = 4;  // A block has this many rows.
constexpr int kGroupThreads = 512, kSumThreads = 256;
// One block of kTogetherThreads threads chooses for up to kMostTogether rows, a warp for each, and
// groups them.
constexpr int kTogetherThreads = 1024, kMostTogether = kTogetherThreads / 32;
constexpr int kTogetherLaneExperts = 8;
constexpr int kSumColumns = 4, kSumChoices = 8;
constexpr int kSharedBytes = 48 << 10, kTogetherBytes = 96 << 10;

// Presents the threads of a block as lanes (lanes.h).
struct BlockLanes {
  static constexpr int kWarps = kGroupThreads / 32;
  int* counts;  // It is shared memory [kWarps].

  static __device__ __forceinline__ int index() { return static_cast<int>(threadIdx.x); }
  static __device__ __forceinline__ int count() { return kGroupThreads; }

  __device__ __forceinline__ int total(int x) const {
    x = __reduce_add_sync(~0u, x);
    __syncthreads();  // The counts have been read.
    if (threadIdx.x % 32 == 0) counts[threadIdx.x / 32] = x;
    __syncthreads();
    int sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w)
      sum += counts[w];
    return sum;
  }
  __device__ __forceinline__ Rank rank(bool flag) const {
    const unsigned votes = __ballot_sync(~0u, flag);
    const int warp = static_cast<int>(threadIdx.x / 32);
    __syncthreads();
    if (threadIdx.x % 32 == 0) counts[warp] = __popc(votes);
    __syncthreads();
    Rank rank;
    rank.before = __popc(votes & ((1u << (threadIdx.x % 32)) - 1));
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) rank.before += counts[w];
      rank.all += counts[w];
    }
    return rank;
  }
};

// Chooses the experts of one row per warp. With `slots.row` null, another launch assigns the slots.
__global__ void __launch_bounds__(kRouteWarps * 32)
    route_kernel(const __grid_constant__ RouteCall call, const SlotArrays slots) {
  WALSH_DYNAMIC_SHARED(unsigned char, memory);
  allow_next_kernel();
  wait_previous_kernel();
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int64_t row = int64_t{blockIdx.x} * kRouteWarps + warp;
  if (row >= call.m) return;
  const RouteScratch scratch =
      RouteScratch::at(memory + warp * RouteScratch::bytes(call.rule), call.rule);
  const float* logits = call.logits + row * call.rule.experts;
  route_by_warp(call, row, scratch, [&](int expert) { return logits[expert]; });
  if (slots.row != nullptr) keep_order_by_warp(call, row, scratch, slots);
}

// Groups the slots of one expert per block.
__global__ void __launch_bounds__(kGroupThreads)
    group_kernel(const int32_t* choices, int count, int chosen, int per_item, SlotArrays slots) {
  __shared__ int counts[BlockLanes::kWarps];
  allow_next_kernel();
  wait_previous_kernel();
  group_expert(BlockLanes{counts}, choices, count, chosen, static_cast<int>(blockIdx.x), per_item,
               slots);
}

// Points to the shared memory of the block that has all rows.
struct TogetherMemory {
  unsigned* rows;    // It is [experts]; bit t says whether row t has the expert.
  int32_t* first;    // It is [experts], the first slot of each.
  int32_t* choices;  // Its shape is [m][chosen].
  unsigned char* scratch;

  static constexpr int bytes(const RouteRule& rule, int64_t m) {
    return 8 * rule.experts + (4 * static_cast<int>(m) * rule.chosen + 15) / 16 * 16 +
           kTogetherThreads / 32 * RouteScratch::bytes(rule);
  }
  static __device__ TogetherMemory at(unsigned char* memory, const RouteRule& rule, int64_t m) {
    TogetherMemory t;
    const int choices = (4 * static_cast<int>(m) * rule.chosen + 15) / 16 * 16;
    t.scratch = memory;
    memory += kTogetherThreads / 32 * RouteScratch::bytes(rule);
    t.choices = reinterpret_cast<int32_t*>(memory);
    t.rows = reinterpret_cast<unsigned*>(memory + choices);
    t.first = reinterpret_cast<int32_t*>(t.rows + rule.experts);
    return t;
  }
};

// Writes the items of all experts. A thread has some neighbouring ones.
__device__ __forceinline__ void make_items(const TogetherMemory& memory, int experts, int per_item,
                                           const SlotArrays& slots) {
  const int each = (experts + kTogetherThreads - 1) / kTogetherThreads;
  const int begin = static_cast<int>(threadIdx.x) * each, end = min(begin + each, experts);
  const auto count_of = [&](int expert) { return __popc(memory.rows[expert]); };
  int own = 0, total = 0;
  for (int expert = begin; expert < end; ++expert)
    own += count_of(expert);
  int first = count_before(own, total);
  for (int expert = begin; expert < end; ++expert) {
    const int count = count_of(expert), place = item_place(first, expert, per_item);
    const int last = item_place(first + count, expert + 1, per_item);
    for (int i = 0; i < last - place; ++i)
      slots.items[place + i] = item_of(expert, first, count, per_item, i);
    memory.first[expert] = first;
    first += count;
  }
}

// Chooses for all rows and groups them, with one block. A row has an expert once, so the rows of an
// expert are bits, and a choice's slot is a number of bits.
__global__ void __launch_bounds__(kTogetherThreads)
    route_together_kernel(const __grid_constant__ RouteCall call, const SlotArrays slots,
                          int per_item) {
  WALSH_DYNAMIC_SHARED(unsigned char, shared);
  const RouteRule& rule = call.rule;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const auto m = static_cast<int>(call.m);
  const TogetherMemory memory = TogetherMemory::at(shared, rule, call.m);
  for (int i = thread; i < rule.experts; i += kTogetherThreads)
    memory.rows[i] = 0;
  __syncthreads();
  allow_next_kernel();
  wait_previous_kernel();
  if (warp < m) {
    const int row = warp;
    const RouteScratch scratch =
        RouteScratch::at(memory.scratch + warp * RouteScratch::bytes(rule), rule);
    const float* logits = call.logits + int64_t{row} * rule.experts;
    const int64_t at = int64_t{row} * rule.chosen;
    route_by_warp<kTogetherLaneExperts>(
        rule, [&](int expert) { return logits[expert]; }, call.bias, scratch, call.choices + at,
        call.weights + at);
    for (int k = WarpLanes::index(); k < rule.chosen; k += 32) {
      const int expert = scratch.chosen[k];
      memory.choices[row * rule.chosen + k] = expert;
      atomicOr(&memory.rows[expert], 1u << row);
    }
  }
  __syncthreads();
  make_items(memory, rule.experts, per_item, slots);
  __syncthreads();
  for (int i = thread; i < m * rule.chosen; i += kTogetherThreads) {
    const int expert = memory.choices[i], row = i / rule.chosen;
    const unsigned before = memory.rows[expert] & ((1u << row) - 1);
    const int slot = memory.first[expert] + __popc(before);
    slots.row[slot] = row;
    slots.slot[i] = slot;
  }
}

// Takes over given choices. A thread has a choice, a column of the zeros, and a place of an item.
// The first places of items, in front of those of the first expert that has slots, have no work.
__global__ void __launch_bounds__(kSumThreads)
    given_kernel(const __grid_constant__ GivenChoices call, const SlotArrays slots, bool grouped,
                 int64_t places) {
  allow_next_kernel();
  wait_previous_kernel();
  const int64_t i = int64_t{blockIdx.x} * kSumThreads + threadIdx.x;
  if (i < call.width) call.zeros[i] = 0;
  if (grouped && i < places) slots.items[i] = ExpertItem();
  const int64_t count = call.m * call.chosen;
  if (i >= count) return;
  const int64_t id = call.wide ? static_cast<const int64_t*>(call.ids)[i]
                               : static_cast<const int32_t*>(call.ids)[i];
  const bool known = id >= 0 && id < call.experts;
  const int expert = known ? static_cast<int>(id) : -1, choice = static_cast<int>(i);
  call.choices[i] = expert;
  if (!grouped) keep_order(choice, call.chosen, known ? expert : 0, slots);
  if (known) return;
  slots.slot[i] = static_cast<int32_t>(count);
  if (!grouped) slots.items[i].count = 0;
}

__global__ void scale_kernel(const int32_t* choices, const float* factors, int64_t count,
                             float* weights) {
  allow_next_kernel();
  wait_previous_kernel();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) weights[i] *= factors[choices[i]];
}

__global__ void clamp_kernel(float* gate, float* up, int64_t count, const GateClamp clamp) {
  allow_next_kernel();
  wait_previous_kernel();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) clamp.apply(gate[i], up[i]);
}

// Multiplies the gate and up of one choice by its weight. A block works on a part of its row.
__global__ void __launch_bounds__(kSumThreads)
    weigh_kernel(float* gate, float* up, const int32_t* slot, const float* weights, int64_t width) {
  allow_next_kernel();
  wait_previous_kernel();
  const int64_t column = int64_t{blockIdx.x} * kSumThreads + threadIdx.x;
  if (column >= width) return;
  const int64_t at = slot[blockIdx.y] * width + column;
  const float weight = weights[blockIdx.y];
  gate[at] *= weight;
  up[at] *= weight;
}

// Sums the experts of one row. A block works on a part of it.
__global__ void __launch_bounds__(kSumThreads) sum_kernel(const __grid_constant__ ExpertSum call) {
  allow_next_kernel();
  wait_previous_kernel();
  const int64_t column = int64_t{blockIdx.x} * kSumThreads + threadIdx.x;
  if (column < call.width) sum_column(call, blockIdx.y, column);
}

// Sums the experts of many rows. A thread takes 4 columns, with loads of up to kSumChoices choices
// in flight.
__global__ void __launch_bounds__(kSumThreads, 4)
    sum_rows_kernel(const __grid_constant__ ExpertSum call) {
  allow_next_kernel();
  wait_previous_kernel();
  const int64_t row = blockIdx.y;
  const int64_t column = (int64_t{blockIdx.x} * kSumThreads + threadIdx.x) * kSumColumns;
  if (column >= call.width) return;
  const int64_t at = row * call.width + column;
  const int32_t* slot = call.slot + row * call.chosen;
  const float* weights = call.weights == nullptr ? nullptr : call.weights + row * call.chosen;
  float4 before = make_float4(0, 0, 0, 0);
  if (call.stream != nullptr) before = *reinterpret_cast<const float4*>(call.stream + at);
  float4 sum = make_float4(0, 0, 0, 0);
  if (call.shared) {
    sum = *reinterpret_cast<const float4*>(call.out + at);
    if (call.share != nullptr) {
      const float share = 1.0f / (1.0f + expf(-call.share[row]));
      sum.x *= share, sum.y *= share, sum.z *= share, sum.w *= share;
    }
  }
  for (int begin = 0; begin < call.chosen; begin += kSumChoices) {
    float4 result[kSumChoices];
    float weight[kSumChoices];
#pragma unroll
    for (int i = 0; i < kSumChoices; ++i) {
      const int k = begin + i;
      if (k >= call.chosen) break;
      weight[i] = weights == nullptr ? 1.0f : weights[k];
      result[i] =
          __ldcg(reinterpret_cast<const float4*>(call.results + slot[k] * call.width + column));
    }
#pragma unroll
    for (int i = 0; i < kSumChoices; ++i) {
      if (begin + i >= call.chosen) break;
      sum.x += weight[i] * result[i].x;
      sum.y += weight[i] * result[i].y;
      sum.z += weight[i] * result[i].z;
      sum.w += weight[i] * result[i].w;
    }
  }
  if (call.stream == nullptr) {
    *reinterpret_cast<float4*>(call.out + at) = sum;
    return;
  }
  before.x += call.scale * sum.x, before.y += call.scale * sum.y;
  before.z += call.scale * sum.z, before.w += call.scale * sum.w;
  *reinterpret_cast<float4*>(call.stream + at) = before;
}

// Returns whether there are enough rows to fill the device with four columns per thread, and
// whether they can be read that way.
bool sums_by_rows(const ExpertSum& call) {
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  const int64_t threads = int64_t{current_device().multiprocessors} * 4 * kSumThreads;
  return call.width % kSumColumns == 0 && call.m * call.width >= threads * kSumColumns &&
         aligned(call.results) && aligned(call.out) && aligned(call.stream);
}

}  // namespace

void check_routing(const RouteCall& call) {
  const RouteRule& rule = call.rule;
  if (is_known(rule) && kRouteWarps * RouteScratch::bytes(rule) <= kSharedBytes &&
      call.m * rule.chosen <= std::numeric_limits<int>::max()) {
    return;
  }
  throw Error(ErrorCode::internal, "GPU experts",
              std::to_string(rule.chosen) + " of " + std::to_string(rule.experts) + " experts in " +
                  std::to_string(rule.groups) + " groups for " + std::to_string(call.m) + " rows");
}

void route(const RouteCall& call, const ExpertPlan& plan, const SlotArrays& slots, Stream stream) {
  if (call.m == 0) return;
  check_routing(call);
  const RouteRule& rule = call.rule;
  const int together = TogetherMemory::bytes(rule, call.m);
  if (plan.grouped() && call.m <= kMostTogether && rule.experts <= 32 * kTogetherLaneExperts &&
      together <= kTogetherBytes) {
    launch("routing", route_together_kernel,
           {dim3(1), dim3(kTogetherThreads), static_cast<size_t>(together)}, stream, call, slots,
           plan.per_item);
    return;
  }
  const int shared = kRouteWarps * RouteScratch::bytes(rule);
  const auto blocks = static_cast<unsigned>((call.m + kRouteWarps - 1) / kRouteWarps);
  launch("routing", route_kernel,
         {dim3(blocks), dim3(kRouteWarps * 32), static_cast<size_t>(shared)}, stream, call,
         plan.grouped() ? SlotArrays() : slots);
  if (!plan.grouped()) return;
  launch("grouping", group_kernel, {dim3(static_cast<unsigned>(rule.experts)), dim3(kGroupThreads)},
         stream, call.choices, static_cast<int>(call.m) * rule.chosen, rule.chosen, plan.per_item,
         slots);
}

void group_given(const GivenChoices& call, const ExpertPlan& plan, const SlotArrays& slots,
                 Stream stream) {
  if (call.m == 0) return;
  const int64_t count = call.m * call.chosen, places = plan.places(count, call.experts);
  const int64_t threads = std::max({count, call.width, places});
  if (count >= std::numeric_limits<int>::max() || call.experts <= 0) {
    throw Error(ErrorCode::internal, "GPU experts",
                std::to_string(count) + " choices of " + std::to_string(call.experts));
  }
  launch(
      "given choices", given_kernel,
      {dim3(static_cast<unsigned>((threads + kSumThreads - 1) / kSumThreads)), dim3(kSumThreads)},
      stream, call, slots, plan.grouped(), places);
  if (!plan.grouped()) return;
  launch("grouping", group_kernel, {dim3(static_cast<unsigned>(call.experts)), dim3(kGroupThreads)},
         stream, call.choices, static_cast<int>(count), call.chosen, plan.per_item, slots);
}

void scale_weights(const int32_t* choices, const float* factors, int64_t count, float* weights,
                   Stream stream) {
  if (count == 0) return;
  const LaunchShape shape{dim3(static_cast<unsigned>((count + kSumThreads - 1) / kSumThreads)),
                          dim3(kSumThreads)};
  launch("weights of experts", scale_kernel, shape, stream, choices, factors, count, weights);
}

void clamp_gates(float* gate, float* up, int64_t count, const GateClamp& clamp, Stream stream) {
  if (count == 0) return;
  launch("clamped gates", clamp_kernel,
         {dim3(static_cast<unsigned>((count + kSumThreads - 1) / kSumThreads)), dim3(kSumThreads)},
         stream, gate, up, count, clamp);
}

void weigh_slots(float* gate, float* up, const int32_t* slot, const float* weights, int64_t choices,
                 int64_t width, Stream stream) {
  if (choices == 0) return;
  const LaunchShape shape{dim3(static_cast<unsigned>((width + kSumThreads - 1) / kSumThreads),
                               static_cast<unsigned>(choices)),
                          dim3(kSumThreads)};
  launch("weights of experts", weigh_kernel, shape, stream, gate, up, slot, weights, width);
}

void sum_experts(const ExpertSum& call, Stream stream) {
  if (call.m == 0) return;
  const bool by_rows = sums_by_rows(call);
  // A block sums this many columns.
  const int64_t columns = by_rows ? kSumThreads * kSumColumns : kSumThreads;
  const LaunchShape shape{dim3(static_cast<unsigned>((call.width + columns - 1) / columns),
                               static_cast<unsigned>(call.m)),
                          dim3(kSumThreads)};
  launch("sum of experts", by_rows ? sum_rows_kernel : sum_kernel, shape, stream, call);
}

}  // namespace walsh::cuda
