// Attention to a cache of latents, in the schedule of decode attention (decode.cuh): every row is
// taken by itself, also those of prompts. A key is a latent and a shared key, the latent is the
// value, and both are the same for all heads; so a warp loads a latent once, multiplies it with the
// queries of 8 heads, and adds it by their weights.
#include <string>

#include "kernels/cuda/attention/decode_pages.cuh"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

struct LatentArgs : DecodeArgs {
  CacheView latents, shared_keys;  // of the pool's values and keys
  int query_dim = 0;               // of a head: those of the latent, then those of the shared key
};

// Reads 16 positions of a warp per step through a ring of the warp in shared memory.
class LatentReader : public PageResults<LatentArgs, kWarpTokens> {
  static constexpr int kTurned = kMaxSharedKey, kStages = 2;
  static constexpr int kLatentBytes = kWarpTokens * TileLayout<kMaxHeadDim>::kRowBytes;
  static constexpr int kSharedBytes = kWarpTokens * TileLayout<kTurned>::kRowBytes;
  static constexpr int kStageBytes = kLatentBytes + kSharedBytes;
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr int kQueryBytes = (kMaxHeadDim + kTurned) / 16 * 32 * 16;

 public:
  static constexpr int kDim = kMaxHeadDim, kWarps = 1, kThreads = 32;
  static constexpr int kBlocks = 0;  // per multiprocessor; 0: the compiler is free
  static constexpr int kShared = kRingBytes + kQueryBytes;
  static_assert(kShared >= PartsShape<kDim, kWarps>::kFloats * 4, "sums and factors reuse it");

  __device__ __forceinline__ LatentReader(const Args& args, unsigned char* memory, int, int lane)
      : PageResults(args), memory_(memory), lane_(lane) {}

  // The rows of a prompt see others of the same launch, so nothing is read before these are there.
  template <bool Capped>
  __device__ __forceinline__ void attend(Running<kDim>& run) const {
    wait_previous_kernel();
    const uint32_t ring = shared_address(memory_);
    const auto issue = [&](int unit, int stage) {
      if (unit < part_.last_unit) load(unit, ring + static_cast<uint32_t>(stage * kStageBytes));
      copy_commit();
    };
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i)
      issue(part_.first_unit + i, i);
    const SharedQueries q{reinterpret_cast<uint4*>(memory_ + kRingBytes) + lane_};
    load_queries(q);
    int stage = 0;
    for (int unit = part_.first_unit; unit < part_.last_unit; ++unit) {
      issue(unit + kStages - 1, (stage + kStages - 1) % kStages);
      copy_wait<kStages - 1>();
      __syncwarp();
      const uint32_t latents = ring + static_cast<uint32_t>(stage * kStageBytes);
      const int token = unit * kWarpTokens;
      SplitLogits logits;
      multiply_keys<kDim, 0>(q, latents, lane_, logits);
      multiply_keys<kTurned, kDim / 16>(q, latents + kLatentBytes, lane_, logits);
      add_values<kDim, Capped>(a_.rule, logits, latents, part_.begin - token, part_.end - token,
                               lane_, run);
      __syncwarp();
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    copy_wait<0>();
  }

 private:
  __device__ __forceinline__ void load_queries(const SharedQueries& q) const {
    const int latent = a_.head_dim, turned = a_.query_dim - latent;
    const float* from = a_.q + part_.row * a_.ldq + part_.first_head * a_.query_dim;
    SharedQueries to = q;
    cuda::load_queries<kDim, 0>(from, a_.query_dim, part_.heads, latent, lane_, to);
    cuda::load_queries<kTurned, kDim / 16>(from + latent, a_.query_dim, part_.heads, turned, lane_,
                                           to);
  }

  __device__ __forceinline__ void load(int unit, uint32_t to) const {
    const int token = unit * kWarpTokens;
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
  const int lane_;
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
  const int splits =
      detail::attention_splits(call.m, call.heads, 1, kLeastBlocks, attention_reach(longest));
  launch_decode<LatentReader>(args, 1, splits, LatentReader::kShared, stream);
}

}  // namespace walsh::cuda
