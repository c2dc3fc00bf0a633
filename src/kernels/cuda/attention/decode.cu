// Runs decode attention (decode.cuh) over fp16 pages.
#include "kernels/cuda/attention/decode_pages.cuh"

namespace walsh::cuda {
namespace {

struct PageDecodeArgs : DecodeArgs {
  CacheView cache;
};

template <int Dim>
struct DecodeShape {
  static constexpr int kWarps = Dim <= 128 ? 4 : Dim <= 256 ? 2 : 1;
  static constexpr int kStages = Dim <= 64 ? 3 : 2;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kUnit = kWarps * kWarpTokens;  // A block takes this many positions per step.
  static constexpr int kTileBytes = kWarpTokens * TileLayout<Dim>::kRowBytes;
  // It is a warp's, for keys and values.
  static constexpr int kRingBytes = kStages * 2 * kTileBytes;
  // Queries of wide heads lie after the rings, because registers have no room for them beside the
  // sums.
  static constexpr bool kSharesQueries = Dim > 256;
  static constexpr int kQueryBytes = kSharesQueries ? Dim / 16 * 32 * 16 : 0;  // It is a warp's.
  static constexpr int kShared = kWarps * (kRingBytes + kQueryBytes);
  static_assert(kShared >= PartsShape<Dim, kWarps>::kFloats * 4, "sums and factors reuse the ring");
};

// Reads fp16 pages, 16 positions of a warp per step, through a ring of the warp in shared memory.
template <int Dim>
class PageReader : public PageResults<PageDecodeArgs, DecodeShape<Dim>::kUnit> {
  using Shape = DecodeShape<Dim>;
  using Results = PageResults<PageDecodeArgs, Shape::kUnit>;
  using Results::a_;
  using Results::part_;

 public:
  using Args = PageDecodeArgs;
  static constexpr int kDim = Dim, kWarps = Shape::kWarps, kThreads = Shape::kThreads;
  // It is the number of blocks per multiprocessor; 0: the compiler may choose registers freely.
  static constexpr int kBlocks = 0;

  __device__ __forceinline__ PageReader(const Args& args, unsigned char* memory, int warp, int lane)
      : Results(args), memory_(memory), warp_(warp), lane_(lane) {}

  // Performs all steps of the warp.
  template <bool Capped>
  __device__ __forceinline__ void attend(Running<Dim>& run) const {
    if constexpr (Shape::kSharesQueries) {
      unsigned char* const behind =
          memory_ + Shape::kWarps * Shape::kRingBytes + warp_ * Shape::kQueryBytes;
      SharedQueries q{reinterpret_cast<uint4*>(behind) + lane_};
      attend<Capped>(run, q);
    } else {
      SplitQueries<Dim> q;
      attend<Capped>(run, q);
    }
  }

 private:
  template <bool Capped, typename Queries>
  __device__ __forceinline__ void attend(Running<Dim>& run, Queries& q) const {
    const uint32_t ring =
        shared_address(memory_) + static_cast<uint32_t>(warp_ * Shape::kRingBytes);
    const int32_t* pages = a_.cache.pages + part_.sequence * a_.cache.per_sequence;
    const auto issue = [&](int unit, int stage) {
      const int token = token_of(unit);
      if (unit < part_.last_unit && is_seen(token)) {
        const int64_t page = pages[token / kPageTokens];
        const uint32_t to = ring + static_cast<uint32_t>(stage * 2 * Shape::kTileBytes);
        load(a_.cache.keys, page, token, to);
        load(a_.cache.values, page, token, to + Shape::kTileBytes);
      }
      copy_commit();
    };
    // The preceding kernel writes the queries and the row's own position. Earlier positions are
    // complete, because the embedding waited for all earlier steps before it let others start. So
    // tiles without the newest position are fetched before the wait.
    bool waited = false;
#pragma unroll
    for (int i = 0; i < Shape::kStages - 1; ++i) {
      if (!waited && part_.end - token_of(part_.first_unit + i) <= kWarpTokens) {
        wait_previous_kernel();
        waited = true;
      }
      issue(part_.first_unit + i, i);
    }
    if (!waited) wait_previous_kernel();
    load_queries<Dim, 0>(a_.q + part_.row * a_.ldq + part_.first_head * a_.head_dim, a_.head_dim,
                         part_.heads, a_.head_dim, lane_, q);
    int stage = 0;
    for (int unit = part_.first_unit; unit < part_.last_unit; ++unit) {
      issue(unit + Shape::kStages - 1, (stage + Shape::kStages - 1) % Shape::kStages);
      copy_wait<Shape::kStages - 1>();
      __syncwarp();
      const int token = token_of(unit);
      if (is_seen(token)) {
        const uint32_t keys = ring + static_cast<uint32_t>(stage * 2 * Shape::kTileBytes);
        SplitLogits logits;
        multiply_keys<Dim, 0>(q, keys, lane_, logits);
        add_values<Dim, Capped>(a_.rule, logits, keys + Shape::kTileBytes, part_.begin - token,
                                part_.end - token, lane_, run);
      }
      __syncwarp();
      stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
    }
    copy_wait<0>();
  }

  __device__ __forceinline__ int token_of(int unit) const {
    return unit * Shape::kUnit + warp_ * kWarpTokens;
  }
  __device__ __forceinline__ bool is_seen(int token) const {
    return part_.begin - token < kWarpTokens && part_.end - token > 0;
  }
  __device__ __forceinline__ void load(const uint16_t* pool, int64_t page, int token,
                                       uint32_t to) const {
    F16Tiles::load<TileLayout<Dim>, kWarpTokens, 32>(pool, a_.cache, page, part_.kv_head,
                                                     token % kPageTokens, part_.begin - token,
                                                     part_.end - token, to, lane_);
  }

  unsigned char* const memory_;
  const int warp_, lane_;
};

template <int Dim>
void launch_pages(const PageDecodeArgs& args, int splits, Stream stream) {
  launch_decode<PageReader<Dim>>(args, args.cache.kv_heads, splits, DecodeShape<Dim>::kShared,
                                 stream);
}

}  // namespace

void attend_decode(const AttentionCall& call, int64_t longest, const AttentionScratch& scratch,
                   Stream stream) {
  if (call.m == 0) return;
  const int dim = call.cache->head_dim, kv_heads = call.cache->kv_heads;
  const PageDecodeArgs args{detail::decode_args(call, kv_heads, dim, scratch),
                            detail::cache_view(call)};
  const int splits = detail::attention_splits(call.m, call.heads, kv_heads, dim <= 64 ? 4 : 3,
                                              attention_reach(longest));
  const auto launch = dim <= 64    ? launch_pages<64>
                      : dim <= 96  ? launch_pages<96>
                      : dim <= 128 ? launch_pages<128>
                      : dim <= 256 ? launch_pages<256>
                                   : launch_pages<512>;
  launch(args, splits, stream);
}

}  // namespace walsh::cuda
