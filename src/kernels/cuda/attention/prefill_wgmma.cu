// Runs prefill attention with Hopper's warp group instructions (wgmma). A block takes a head and 64
// queries per warp group. Queries and softmax weights are operands in registers; keys and values
// are operands in shared memory, where they pass through a ring. While one group computes its
// softmax the others multiply, as in FlashAttention-3 (Shah et al. 2024), but without warp
// specialization.
#include "kernels/cuda/attention/prefill.h"
#include "kernels/cuda/attention/prefill_softmax.cuh"
#include "kernels/cuda/f16_products.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/warp_group.cuh"

namespace walsh::cuda::detail {
namespace {

template <int Dim>
struct GroupShape {
  static constexpr int kDim = Dim, kColumns = Dim, kTiles = 1;
  static constexpr int kTokens = 64;
  static constexpr int kGroups = 3, kThreads = kGroups * 128;
  static constexpr int kQueries = kGroups * 64;
  static constexpr int kStages = 3;
  static constexpr int kTileBytes = kTokens * Dim * 2;
  static constexpr int kShared = kStages * 2 * kTileBytes;  // It is for keys and values.
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int kBlockBytes = 64 * 128;

// Lays out tiles for wgmma, which are blocks of 64 columns with rows of 128 bytes, in the 128-byte
// swizzle.
template <int Dim>
struct GroupLayout {
  static constexpr int kPieces = Dim / 8;

  static __device__ __forceinline__ uint32_t offset(int row, int piece) {
    return static_cast<uint32_t>(piece / 8 * kBlockBytes + row * 128 +
                                 ((piece % 8 ^ (row & 7)) << 4));
  }
};

// Returns the descriptor of an operand in shared memory. 8 rows take 1024 bytes; transposed
// operands continue in the next block after 64 columns.
__device__ __forceinline__ uint64_t operand(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) |
         static_cast<uint64_t>(kBlockBytes >> 4) << 16 | static_cast<uint64_t>(1024 >> 4) << 32 |
         uint64_t{1} << 62;
}

template <int N, int K>
__device__ __forceinline__ void begin_products(float (&d)[N][4], uint32_t (&a)[K][4]) {
  pin(d);
  pin(a);
  wgmma_fence();
}

// Waits for the products that have been started.
template <int N>
__device__ __forceinline__ void finish_products(float (&d)[N][4]) {
  wgmma_commit();
  wgmma_wait<0>();
  pin(d);
}

// Makes this thread's copies visible to products.
__device__ __forceinline__ void publish_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Loads the warp's 16 queries as operands. Rows from m on and columns from head_dim on become 0.
template <int Dim>
__device__ __forceinline__ void load_queries(const RowArgs& args, int first, int head, int lane,
                                             uint32_t (&q)[Dim / 16][4]) {
  const int dim = args.head_dim;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int row = first + lane / 4 + 8 * (e % 2);
    const float* from = args.q + row * args.ldq + head * dim;
#pragma unroll
    for (int k = 0; k < Dim / 16; ++k) {
      const int column = 16 * k + 8 * (e / 2) + 2 * (lane % 4);
      float2 v = make_float2(0, 0);
      if (row < args.m && column < dim) v = *reinterpret_cast<const float2*>(from + column);
      q[k][e] = pack_halves(v.x, v.y);
    }
  }
}

template <int Dim>
__device__ __forceinline__ void attend_group(const PagePrefillArgs& args, unsigned char* memory) {
  using Shape = GroupShape<Dim>;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int head = static_cast<int>(blockIdx.x);
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * Shape::kQueries;
  const int position = args.rows.positions[0];
  const int32_t* pages = args.cache.pages + args.rows.sequences[0] * args.cache.per_sequence;
  const int end = position + min(first + Shape::kQueries, args.m);
  const int begin = 0, first_tile = 0;  // launch_prefill_wgmma() takes no windows and chunks.
  const int last_tile = (end + Shape::kTokens - 1) / Shape::kTokens;

  const uint32_t ring = shared_address(memory);
  const auto load = [&](int tile, int stage) {
    if (tile < last_tile) {
      const int token = tile * Shape::kTokens;
      const int64_t page = pages[tile];
      const uint32_t to = ring + static_cast<uint32_t>(stage * 2 * Shape::kTileBytes);
      const int thread = static_cast<int>(threadIdx.x);
      F16Tiles::load<GroupLayout<Dim>, Shape::kTokens, Shape::kThreads>(
          args.cache.keys, args.cache, page, head / args.group, 0, begin - token, end - token, to,
          thread);
      F16Tiles::load<GroupLayout<Dim>, Shape::kTokens, Shape::kThreads>(
          args.cache.values, args.cache, page, head / args.group, 0, begin - token, end - token,
          to + Shape::kTileBytes, thread);
    }
    copy_commit();
  };
  static_assert(Shape::kTokens == kPageTokens);
#pragma unroll
  for (int i = 0; i < Shape::kStages - 1; ++i)
    load(first_tile + i, i);
  uint32_t q[Dim / 16][4];
  load_queries<Dim>(args, first + 16 * warp, head, lane, q);

  PrefillSums<Shape> run;
  const int row = position + first + 16 * warp;
  int stage = 0;
  for (int tile = first_tile; tile < last_tile; ++tile) {
    copy_wait<Shape::kStages - 2>();
    publish_copies();
    __syncthreads();
    load(tile + Shape::kStages - 1, stage == 0 ? Shape::kStages - 1 : stage - 1);
    const uint32_t keys = ring + static_cast<uint32_t>(stage * 2 * Shape::kTileBytes);
    const uint32_t values = keys + Shape::kTileBytes;
    PrefillLogits<Shape> s = {};
    begin_products(s[0], q);
#pragma unroll
    for (int k = 0; k < Dim / 16; ++k)
      multiply_f16(s[0], q[k], operand(keys + k / 4 * kBlockBytes + k % 4 * 32));
    finish_products(s[0]);
    mask_tile<Shape>(AttentionRule{}, row, tile * Shape::kTokens, lane, s);
    soften<Shape>(args.rule.scale, run, s);
    uint32_t p[Shape::kTokens / 16][4];
#pragma unroll
    for (int k = 0; k < Shape::kTokens / 16; ++k)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        p[k][e] =
            pack_halves(s[0][2 * k + e / 2][2 * (e % 2)], s[0][2 * k + e / 2][2 * (e % 2) + 1]);
    begin_products(run.sum[0], p);
#pragma unroll
    for (int k = 0; k < Shape::kTokens / 16; ++k)
      multiply_f16<1>(run.sum[0], p[k], operand(values + k * 16 * 128));
    finish_products(run.sum[0]);
    stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
  }
  copy_wait<0>();
  store_result<Shape>(args, first + 16 * warp, head, 0, lane, run);
}

#endif

// Attends with one block of queries. The grid spans heads in x, and blocks of queries in y, the
// longest first. The kernel is empty for architectures without the instructions.
template <int Dim>
__global__ void __launch_bounds__(GroupShape<Dim>::kThreads, 1)
    group_kernel([[maybe_unused]] const __grid_constant__ PagePrefillArgs args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  WALSH_SHARED_TILES(memory);
  allow_next_kernel();
  wait_previous_kernel();
  attend_group<Dim>(args, memory);
#endif
}

template <int Dim>
bool launch_group(const PagePrefillArgs& args, Stream stream) {
  using Shape = GroupShape<Dim>;
  static_assert(Shape::kDim % 64 == 0 && Shape::kTiles == 1, "wgmma has 64 rows");
  if (current_device().major != 9 || !has_body(group_kernel<Dim>)) return false;
  const LaunchShape shape{
      dim3(static_cast<unsigned>(args.heads),
           static_cast<unsigned>((args.m + Shape::kQueries - 1) / Shape::kQueries)),
      dim3(Shape::kThreads), Shape::kShared};
  launch("prefill attention", group_kernel<Dim>, shape, stream, args);
  return true;
}

}  // namespace

// Launches the kernel if it pays off. Heads of up to 96 columns do not use it, because the padding
// would cost what the instructions gain. Larger heads do not fit into the registers. An instance
// for 64 gained 13 %, but ptxas 13.0 gives its queries and weights the same registers although the
// queries are still needed. Windows stay with the general kernel until GpuAttention's tests of them
// have run with this one; so do caps, which few models have.
bool launch_prefill_wgmma(const PagePrefillArgs& args, Stream stream) {
  const AttentionRule& rule = args.rule;
  const int dim = args.head_dim;
  return dim > 96 && dim <= 128 && args.value_dim == dim && rule.window == 0 && rule.chunk == 0 &&
         rule.cap.power == 0 && launch_group<128>(args, stream);
}

}  // namespace walsh::cuda::detail
