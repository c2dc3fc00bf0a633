// Decode attention (decode.cuh) over fp16 pages.
//
// The tensor cores have time to spare: queries and softmax weights are sums of two halves each, so
// that nothing but the cache is rounded to fp16.
#include "kernels/cuda/attention/decode.cuh"

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
  static constexpr int kUnit = kWarps * kWarpTokens;  // positions per step of a block
  static constexpr int kTileBytes = kWarpTokens * TileLayout<Dim>::kRowBytes;
  static constexpr int kRingBytes = kStages * 2 * kTileBytes;  // per warp, for keys and values
  // Queries of wide heads, which registers have no room for beside the sums, lie behind the rings.
  static constexpr bool kSharesQueries = Dim > 256;
  static constexpr int kQueryBytes = kSharesQueries ? Dim / 16 * 32 * 16 : 0;  // of a warp
  static constexpr int kShared = kWarps * (kRingBytes + kQueryBytes);
  static_assert(kShared >= PartsShape<Dim, kWarps>::kFloats * 4, "sums and factors reuse the ring");
};

// Queries as operand b, each split into near + 2^-11 rest. Scaling makes the rest as large as
// `near`, and so as exact for small numbers.
template <int Dim>
struct SplitQueries {
  static constexpr float kRestTimes = 2048;
  uint32_t near[Dim / 16][2], rest[Dim / 16][2];

  __device__ __forceinline__ uint4 get(int k) const {
    return make_uint4(near[k][0], near[k][1], rest[k][0], rest[k][1]);
  }
  __device__ __forceinline__ void set(int k, const uint4& v) {
    near[k][0] = v.x, near[k][1] = v.y, rest[k][0] = v.z, rest[k][1] = v.w;
  }
};

// The same in shared memory, where a lane reads what it has written.
struct SharedQueries {
  uint4* lane;  // [Dim / 16][32]

  __device__ __forceinline__ uint4 get(int k) const { return lane[32 * k]; }
  __device__ __forceinline__ void set(int k, const uint4& v) const { lane[32 * k] = v; }
};

// Steps of the positions of a block.
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

template <int Dim, typename Queries>
__device__ __forceinline__ void load_queries(const DecodeArgs& args, const DecodePart& part,
                                             int lane, Queries& q) {
  const int head = lane / 4, column = 2 * (lane % 4);
  const int dim = args.head_dim;
  const float* from = args.q + part.row * args.ldq + (part.first_head + head) * dim;
#pragma unroll
  for (int k = 0; k < Dim / 16; ++k) {
    uint32_t near[2], rest[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int c = 16 * k + 8 * i + column;
      float2 v = make_float2(0, 0);
      if (head < part.heads && c < dim) v = *reinterpret_cast<const float2*>(from + c);
      near[i] = pack_halves(v.x, v.y);
      rest[i] = pack_rests(near[i], v.x, v.y, SplitQueries<Dim>::kRestTimes);
    }
    q.set(k, make_uint4(near[0], near[1], rest[0], rest[1]));
  }
}

// One step: 16 positions, of which those in [low, high) are visible.
template <int Dim, bool Capped, typename Queries>
__device__ __forceinline__ void attend_tile(const DecodeArgs& args, const Queries& q, uint32_t keys,
                                            uint32_t values, int low, int high, int lane,
                                            Running<Dim>& run) {
  using Layout = TileLayout<Dim>;
  const int matrix = lane / 8, r = lane % 8;
  float near[2][4] = {}, rest[2][4] = {};  // separate accumulators keep chains of products short
  const uint32_t key_row = keys + Layout::offset(r + 8 * (matrix & 1), matrix >> 1);
#pragma unroll
  for (int k = 0; k < Dim / 16; ++k) {
    uint32_t a[4];
    load_matrices(a, key_row ^ Layout::step(k));
    const uint4 b = q.get(k);
    mma_f16(near[k % 2], a, b.x, b.y);
    mma_f16(rest[k % 2], a, b.z, b.w);
  }
  float logits[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    logits[e] = __fmaf_rn(rest[0][e] + rest[1][e], 1 / SplitQueries<Dim>::kRestTimes,
                          near[0][e] + near[1][e]);
  }
  cap_logits<Capped>(args.rule, logits);
  uint32_t b[2], b_rest[2];
  weigh_tile<Dim, false>(logits, low, high, args.rule.scale, lane, run, 0, [&](const float(&p)[4]) {
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

// Reads fp16 pages, 16 positions of a warp per step, through a ring of the warp in shared memory.
template <int Dim>
class PageReader {
  using Shape = DecodeShape<Dim>;

 public:
  using Args = PageDecodeArgs;
  static constexpr int kDim = Dim, kWarps = Shape::kWarps, kThreads = Shape::kThreads;
  static constexpr int kBlocks = 0;  // per multiprocessor; 0: the compiler is free

  __device__ __forceinline__ PageReader(const Args& args, unsigned char* memory, int warp, int lane)
      : a_(args), part_(args), memory_(memory), warp_(warp), lane_(lane) {}

  __device__ __forceinline__ const DecodePart& part() const { return part_; }

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

  // Takes four sums of a head of the part, which have to be multiplied by a factor.
  __device__ __forceinline__ void take(int head, int column, const float4& sum,
                                       float factor) const {
    float* out = a_.out + part_.row * a_.ldo + part_.first_head * a_.head_dim;
    store_scaled(out + head * a_.head_dim + column, sum, factor);
  }
  // Called when the row's results are complete.
  __device__ __forceinline__ void finish() const {}

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
    // The preceding kernel writes the queries and the row's own position, but no earlier positions:
    // those are complete, because the embedding waited for all earlier steps before it let others
    // start. So tiles without the newest position are fetched ahead of the wait.
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
    load_queries<Dim>(a_, part_, lane_, q);
    int stage = 0;
    for (int unit = part_.first_unit; unit < part_.last_unit; ++unit) {
      issue(unit + Shape::kStages - 1, (stage + Shape::kStages - 1) % Shape::kStages);
      copy_wait<Shape::kStages - 1>();
      __syncwarp();
      const int token = token_of(unit);
      if (is_seen(token)) {
        const uint32_t keys = ring + static_cast<uint32_t>(stage * 2 * Shape::kTileBytes);
        attend_tile<Dim, Capped>(a_, q, keys, keys + Shape::kTileBytes, part_.begin - token,
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

  const Args& a_;
  const PagePart<Shape::kUnit> part_;
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
