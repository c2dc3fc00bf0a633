// Computes attention to a cache of latents, in the schedule of decode attention (decode.cuh), which
// takes every row by itself. A key is a latent and a shared key, the latent is the value, and both
// are the same for all heads. So a warp loads a latent once, multiplies it with the queries of 8
// heads, and adds it by their weights.
#include <string>

#include "kernels/cuda/attention/decode_pages.cuh"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

struct LatentArgs : DecodeArgs {
  CacheView latents, shared_keys;  // They are the pool's values and keys.
  int query_dim = 0;               // A head has those of the latent, then those of the shared key.
};

constexpr int kLatentWarps = 4;

// Reads 16 positions of a warp per step through a ring of the warp in shared memory. Queries are
// there once for all warps.
class LatentReader : public PageResults<LatentArgs, kLatentWarps * kWarpTokens> {
  static constexpr int kTurned = kMaxSharedKey, kStages = 2;
  static constexpr int kLatentBytes = kWarpTokens * TileLayout<kMaxHeadDim>::kRowBytes;
  static constexpr int kSharedBytes = kWarpTokens * TileLayout<kTurned>::kRowBytes;
  static constexpr int kStageBytes = kLatentBytes + kSharedBytes;
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr int kQueryBytes = (kMaxHeadDim + kTurned) / 16 * 32 * 16;

 public:
  static constexpr int kDim = kMaxHeadDim, kWarps = kLatentWarps, kThreads = kWarps * 32;
  // It is the number of blocks per multiprocessor; 0: the compiler may choose registers freely.
  static constexpr int kBlocks = 0;
  static constexpr int kShared = kWarps * kRingBytes + kQueryBytes;
  static_assert(kShared >= PartsShape<kDim, kWarps>::kFloats * 4, "sums and factors reuse it");

  __device__ __forceinline__ LatentReader(const Args& args, unsigned char* memory, int warp,
                                          int lane)
      : PageResults(args), memory_(memory), warp_(warp), lane_(lane) {}

  // Computes attention to the warp's positions. Rows of one sequence may see others of the same
  // launch, so nothing is read before these are there.
  template <bool Capped>
  __device__ __forceinline__ void attend(Running<kDim>& run) const {
    wait_previous_kernel();
    const uint32_t ring = shared_address(memory_) + static_cast<uint32_t>(warp_ * kRingBytes);
    const auto issue = [&](int unit, int stage) {
      const int token = token_of(unit);
      if (unit < part_.last_unit && is_seen(token))
        load(token, ring + static_cast<uint32_t>(stage * kStageBytes));
      copy_commit();
    };
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i)
      issue(part_.first_unit + i, i);
    const SharedQueries q{reinterpret_cast<uint4*>(memory_ + kWarps * kRingBytes) + lane_};
    load_queries(q);
    __syncthreads();
    int stage = 0;
    for (int unit = part_.first_unit; unit < part_.last_unit; ++unit) {
      issue(unit + kStages - 1, (stage + kStages - 1) % kStages);
      copy_wait<kStages - 1>();
      __syncwarp();
      const int token = token_of(unit);
      if (is_seen(token)) {
        const uint32_t latents = ring + static_cast<uint32_t>(stage * kStageBytes);
        SplitLogits logits;
        multiply_keys<kDim, 0>(q, latents, lane_, logits);
        multiply_keys<kTurned, kDim / 16>(q, latents + kLatentBytes, lane_, logits);
        add_values<kDim, Capped>(a_.rule, logits, latents, part_.begin - token, part_.end - token,
                                 lane_, run);
      }
      __syncwarp();
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    copy_wait<0>();
  }

 private:
  __device__ __forceinline__ int token_of(int unit) const {
    return (unit * kWarps + warp_) * kWarpTokens;
  }
  __device__ __forceinline__ bool is_seen(int token) const {
    return part_.begin - token < kWarpTokens && part_.end - token > 0;
  }

  // Loads the queries: every warp loads a part of the columns, and all warps then use them.
  __device__ __forceinline__ void load_queries(const SharedQueries& q) const {
    // A warp has this many columns.
    constexpr int kLatents = kDim / kWarps, kShares = kTurned / kWarps;
    const int latent = a_.head_dim, turned = a_.query_dim - latent;
    const float* from = a_.q + part_.row * a_.ldq + part_.first_head * a_.query_dim;
    const auto load_part = [&]<int Columns>(int first_operand, int first, int count) {
      SharedQueries to{q.lane + 32 * (first_operand + warp_ * (Columns / 16))};
      cuda::load_queries<Columns, 0>(from + first + warp_ * Columns, a_.query_dim, part_.heads,
                                     count - warp_ * Columns, lane_, to);
    };
    load_part.template operator()<kLatents>(0, 0, latent);
    load_part.template operator()<kShares>(kDim / 16, latent, turned);
  }

  __device__ __forceinline__ void load(int token, uint32_t to) const {
    const int64_t page =
        a_.latents.pages[part_.sequence * a_.latents.per_sequence + token / kPageTokens];
    load_side<TileLayout<kDim>>(a_.latents, page, token, to);
    load_side<TileLayout<kTurned>>(a_.shared_keys, page, token, to + kLatentBytes);
  }

  template <typename Layout>
  __device__ __forceinline__ void load_side(const CacheView& side, int64_t page, int token,
                                            uint32_t to) const {
    F16Tiles::load<Layout, kWarpTokens, 32>(side.keys, side, page, 0, token % kPageTokens,
                                            part_.begin - token, part_.end - token, to, lane_);
  }

  unsigned char* const memory_;
  const int warp_, lane_;
};

void check_latents(const AttentionCall& call) {
  const KvPool& pool = *call.cache;
  if (pool.kv_heads == 1 && pool.value_dim % 8 == 0 && pool.head_dim <= kMaxSharedKey &&
      call.m <= kDecodeRows)
    return;
  throw Error(ErrorCode::internal, "GPU attention",
              "a latent of " + std::to_string(pool.value_dim) + " and a shared key of " +
                  std::to_string(pool.head_dim) + " values");
}

}  // namespace

void attend_latents(const AttentionCall& call, int64_t longest, const AttentionScratch& scratch,
                    Stream stream) {
  if (call.m == 0) return;
  check_latents(call);
  const KvPool& pool = *call.cache;
  LatentArgs args;
  static_cast<DecodeArgs&>(args) = detail::decode_args(call, 1, pool.value_dim, scratch);
  args.query_dim = pool.value_dim + pool.head_dim;
  args.latents = args.shared_keys = detail::cache_view(call);
  args.latents.keys = args.latents.values;
  args.latents.head_dim = pool.value_dim;
  // A block is alone on its multiprocessor and has work for twice the usual positions, because
  // parts of 512 values are slow to combine. There are never more parts than with kLeastBlocks, for
  // which the scratch memory is made.
  const int splits =
      detail::attention_splits(call.m, call.heads, 1, 1, attention_reach(longest) / 2);
  launch_decode<LatentReader>(args, 1, splits, LatentReader::kShared, stream);
}

}  // namespace walsh::cuda
