// Copies rows of keys and values between tiles, rings and buffers of one sequence. Codes are
// decoded to fp16 rows: a warp decodes 64 columns of a tile, each lane 16 bytes of a row at a time.
#include <string>

#include "cache/cuda/coded_cache.h"
#include "codec/scalar/words.h"
#include "kernels/cuda/attention/coded_tile.cuh"
#include "kernels/cuda/attention/tile.cuh"
#include "kernels/cuda/launch.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;
constexpr int kColumns = 64;  // A warp decodes this many columns.
constexpr int kBundleTiles = kCacheBundle / kCacheTile;

// Describes one sequence's keys or values, [kv_head][capacity][dim], in a ring or from `first` on.
struct RowSet {
  uint16_t* rows = nullptr;
  int64_t capacity = 0;
  int dim = 0, ring = 0, first = 0;

  __device__ __forceinline__ uint16_t* row(int head, int position) const {
    const int64_t index = ring > 0 ? position % ring : position - first;
    return rows + (head * capacity + index) * dim;
  }
};

struct StoredSet {
  CodedSide side;
  const float* offsets = nullptr;  // Keys have these, [kv_head][dim].
  // It has the shape [kv_head][kLeadingPositions][dim]; null: they are read as stored.
  const uint16_t* leading = nullptr;
  const int32_t* pages = nullptr;
  int kv_heads = 0, dim = 0;

  __device__ __forceinline__ const unsigned char* tile(int head, int tile) const {
    const int64_t page = pages[tile / kPageTiles];
    return side.tiles +
           ((page * kv_heads + head) * kPageTiles + tile % kPageTiles) * side.tile_bytes;
  }
  // Returns the row of a leading position, or null if the position is not one.
  __device__ __forceinline__ const uint16_t* leading_row(int head, int position) const {
    if (position >= kLeadingPositions || leading == nullptr) return nullptr;
    return leading + (int64_t{head} * kLeadingPositions + position) * dim;
  }
  // Returns the row of an fp16 position.
  __device__ __forceinline__ const uint16_t* row(int head, int position) const {
    const uint16_t* exact = leading_row(head, position);
    if (exact != nullptr) return exact;
    return reinterpret_cast<const uint16_t*>(tile(head, position / kCacheTile)) +
           position % kCacheTile * dim;
  }
};

template <typename From>
struct CopyArgs {
  From from[2];
  RowSet to[2];
  int begin = 0, end = 0;  // They bound the positions.
};

// Copies rows. The grid spans pieces of 16 bytes of all positions in x, heads in y, and keys and
// values in z.
template <typename From>
__global__ void __launch_bounds__(kThreads)
    copy_kernel(const __grid_constant__ CopyArgs<From> args) {
  allow_next_kernel();
  wait_previous_kernel();
  const int side = static_cast<int>(blockIdx.z), head = static_cast<int>(blockIdx.y);
  const int pieces = args.to[side].dim / 8;
  const int index = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const int position = args.begin + index / pieces, piece = index % pieces;
  if (position >= args.end) return;
  const uint16_t* from = args.from[side].row(head, position);
  uint16_t* to = args.to[side].row(head, position);
  reinterpret_cast<uint4*>(to)[piece] = reinterpret_cast<const uint4*>(from)[piece];
}

struct LoadArgs {
  StoredSet from;
  RowSet to;
  int first_tile = 0, tiles = 0;
};

// Transposes four words among four lanes: word k of lane t becomes word t of lane k.
__device__ __forceinline__ void transpose_words(int lane, uint32_t (&words)[4]) {
#pragma unroll
  for (int distance = 1; distance <= 2; distance *= 2) {
    const bool upper = (lane & distance) != 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if ((k & distance) != 0) continue;
      const uint32_t sent = upper ? words[k] : words[k + distance];
      const uint32_t got = __shfl_xor_sync(~0u, sent, distance);
      words[k] = upper ? got : words[k];
      words[k + distance] = upper ? words[k + distance] : got;
    }
  }
}

// Says where the columns of a warp are written, and which scales their levels have. Lane 4 g + t
// has positions g and g + 8 of the tile (r = 0, 1), and of each 32 columns b first pairs of columns
// 8 k + 2 t, k < 4, then columns 8 t to 8 t + 7.
template <bool Keys>
class SlabRows {
 public:
  __device__ __forceinline__ SlabRows(const LoadArgs& args, const unsigned char* scales, int tile,
                                      int head, int slab, int lane)
      : lane_(lane), column_(slab * kColumns + 8 * (lane % 4)) {
    const StoredSet& from = args.from;
    const int g = lane / 4, groups = from.side.groups, position = tile * kCacheTile + g;
    const auto* halves = reinterpret_cast<const __half*>(scales);
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const int group = groups > 1 ? kColumns / 32 * slab + b : 0;
      const int at = Keys ? (g * groups + group) * 2 : (g / 2 * groups + group) * 4 + g % 2;
      scale_[b][0] = halves[at];
      scale_[b][1] = halves[at + (Keys ? 1 : 2)];
    }
#pragma unroll
    for (int r = 0; r < 2; ++r)
      rows_[r] = args.to.row(head, position + 8 * r) + column_;
    leading_ = from.leading_row(head, position);
    if (Keys) offsets_ = from.offsets + int64_t{head} * from.dim + slab * kColumns + 2 * (lane % 4);
  }

  // Writes the levels of position r in columns b.
  __device__ __forceinline__ void store(int b, int r, const uint32_t (&levels)[4]) const {
    uint32_t words[4];
#pragma unroll
    for (int k = 0; k < 4; ++k)
      words[k] = value(levels[k], scale_[b][r], 32 * b + 8 * k);
    transpose_words(lane_, words);
    uint4 packed = make_uint4(words[0], words[1], words[2], words[3]);
    if (r == 0 && leading_ != nullptr)
      packed = *reinterpret_cast<const uint4*>(leading_ + column_ + 32 * b);
    *reinterpret_cast<uint4*>(rows_[r] + 32 * b) = packed;
  }

 private:
  // Returns scale * level as fp16, rounded once: the product of two halves is exact in float, and
  // __hmul2 rounds in the same way.
  __device__ __forceinline__ uint32_t value(uint32_t levels, __half scale, int column) const {
    if constexpr (Keys) {
      const float2 level = halves(levels);
      const float2 offset = *reinterpret_cast<const float2*>(offsets_ + column);
      const float factor = __half2float(scale);
      return pack_halves(__fmaf_rn(level.x, factor, offset.x),
                         __fmaf_rn(level.y, factor, offset.y));
    } else {
      const __half2 product =
          __hmul2(*reinterpret_cast<const __half2*>(&levels), __half2half2(scale));
      return *reinterpret_cast<const uint32_t*>(&product);
    }
  }

  int lane_, column_;
  __half scale_[2][2];
  uint16_t* rows_[2];
  const uint16_t* leading_;
  const float* offsets_;
};

// Decodes tiles. The grid spans slabs of 64 columns of all tiles in x, one warp each, and heads in
// y.
template <int Bits, bool Keys>
__global__ void __launch_bounds__(kThreads) load_kernel(const __grid_constant__ LoadArgs args) {
  constexpr int kSlabBytes = tile_code_bytes(kColumns, Bits);
  __shared__ __align__(16) unsigned char memory[kWarps][kSlabBytes];
  allow_next_kernel();
  wait_previous_kernel();
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int slabs = args.from.dim / kColumns, head = static_cast<int>(blockIdx.y);
  const int index = static_cast<int>(blockIdx.x) * kWarps + warp;
  if (index >= args.tiles * slabs) return;
  const int tile = args.first_tile + index / slabs, slab = index % slabs;
  const unsigned char* codes = args.from.tile(head, tile);
  const uint32_t shared = shared_address(memory[warp]);
  for (int i = 16 * lane; i < kSlabBytes; i += 16 * 32)
    copy_async(shared + static_cast<uint32_t>(i), codes + slab * kSlabBytes + i);
  copy_commit();
  const SlabRows<Keys> rows(args, codes + slabs * kSlabBytes, tile, head, slab, lane);
  copy_wait<0>();
  __syncwarp();
  uint32_t levels[2][4];  // The levels of values are collected here, by position.
  const auto store = [&](int i, const uint32_t(&out)[4]) {
    if constexpr (Keys) {
      rows.store(i / 2, i % 2, out);
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        levels[e % 2][2 * (i % 2) + e / 2] = transpose8x8(out[e]);
      if (i % 2 == 0) return;
      rows.store(i / 2, 0, levels[0]);
      rows.store(i / 2, 1, levels[1]);
    }
  };
  decode_lane<Bits, kColumns>(SharedWords{shared + static_cast<uint32_t>(4 * lane)},
                              args.from.side.levels, store);
}

template <bool Keys>
void load_codes(const LoadArgs& args, Stream stream) {
  const int64_t warps = int64_t{args.tiles} * (args.from.dim / kColumns);
  const LaunchShape shape{dim3(static_cast<unsigned>((warps + kWarps - 1) / kWarps),
                               static_cast<unsigned>(args.from.kv_heads)),
                          dim3(kThreads)};
  const auto kernel = scalar::with_width(
      args.from.side.bits, [](auto width) { return load_kernel<decltype(width)::value, Keys>; });
  launch("cached bundles", kernel, shape, stream, args);
}

template <typename From>
void copy_rows(const CopyArgs<From>& args, int kv_heads, int sides, Stream stream) {
  if (args.begin >= args.end) return;
  const int64_t pieces = int64_t{args.end - args.begin} * (args.to[0].dim / 8);
  const LaunchShape shape{dim3(static_cast<unsigned>((pieces + kThreads - 1) / kThreads),
                               static_cast<unsigned>(kv_heads), static_cast<unsigned>(sides)),
                          dim3(kThreads)};
  launch("cached rows", copy_kernel<From>, shape, stream, args);
}

StoredSet stored_set(const CodedView& cache, const CodedSide& side, int sequence) {
  StoredSet set;
  set.side = side;
  const int64_t heads = int64_t{sequence} * cache.kv_heads;
  if (side.leading != nullptr)
    set.leading = side.leading + heads * kLeadingPositions * cache.head_dim;
  set.pages = cache.pages + sequence * cache.per_sequence;
  set.kv_heads = cache.kv_heads;
  set.dim = cache.head_dim;
  return set;
}

RowSet ring_set(const CodedView& cache, const CodedSide& side, int sequence) {
  RowSet set;
  set.rows = side.ring + int64_t{sequence} * cache.kv_heads * cache.ring * cache.head_dim;
  set.capacity = set.ring = cache.ring;
  set.dim = cache.head_dim;
  return set;
}

RowSet fresh_set(const CodedView& cache, const FreshRows& fresh, uint16_t* rows) {
  RowSet set;
  set.rows = rows;
  set.capacity = fresh.capacity;
  set.first = fresh.first;
  set.dim = cache.head_dim;
  return set;
}

template <bool Keys>
void load_side(const CodedView& cache, const BundleRange& bundles, const RowSet& to,
               Stream stream) {
  LoadArgs args;
  args.from = stored_set(cache, Keys ? cache.keys : cache.values, bundles.sequence);
  args.to = to;
  if (args.from.side.bits == 0) {
    CopyArgs<StoredSet> copy;
    copy.from[0] = args.from;
    copy.to[0] = to;
    copy.begin = bundles.first * kCacheBundle;
    copy.end = bundles.last * kCacheBundle;
    copy_rows(copy, cache.kv_heads, 1, stream);
    return;
  }
  if (Keys)
    args.from.offsets =
        cache.key_offsets + int64_t{bundles.sequence} * cache.kv_heads * cache.head_dim;
  args.first_tile = bundles.first * kBundleTiles;
  args.tiles = (bundles.last - bundles.first) * kBundleTiles;
  load_codes<Keys>(args, stream);
}

void load(const CodedView& cache, const BundleRange& bundles, const RowSet& keys,
          const RowSet& values, Stream stream) {
  if (bundles.first >= bundles.last) return;
  if (cache.head_dim % kColumns != 0) {
    throw Error(ErrorCode::internal, "GPU cache",
                "heads of " + std::to_string(cache.head_dim) + " values");
  }
  load_side<true>(cache, bundles, keys, stream);
  load_side<false>(cache, bundles, values, stream);
}

}  // namespace

void copy_from_ring(const CodedView& cache, int sequence, int begin, int end,
                    const FreshRows& fresh, Stream stream) {
  CopyArgs<RowSet> args;
  args.from[0] = ring_set(cache, cache.keys, sequence);
  args.from[1] = ring_set(cache, cache.values, sequence);
  args.to[0] = fresh_set(cache, fresh, fresh.keys);
  args.to[1] = fresh_set(cache, fresh, fresh.values);
  args.begin = begin;
  args.end = end;
  copy_rows(args, cache.kv_heads, 2, stream);
}

void copy_to_ring(const CodedView& cache, int sequence, int begin, int end, const FreshRows& fresh,
                  Stream stream) {
  CopyArgs<RowSet> args;
  args.from[0] = fresh_set(cache, fresh, fresh.keys);
  args.from[1] = fresh_set(cache, fresh, fresh.values);
  args.to[0] = ring_set(cache, cache.keys, sequence);
  args.to[1] = ring_set(cache, cache.values, sequence);
  args.begin = begin;
  args.end = end;
  copy_rows(args, cache.kv_heads, 2, stream);
}

void load_bundles(const CodedView& cache, const BundleRange& bundles, const FreshRows& to,
                  Stream stream) {
  load(cache, bundles, fresh_set(cache, to, to.keys), fresh_set(cache, to, to.values), stream);
}

void restore_bundles(const CodedView& cache, const BundleRange& bundles, Stream stream) {
  load(cache, bundles, ring_set(cache, cache.keys, bundles.sequence),
       ring_set(cache, cache.values, bundles.sequence), stream);
}

}  // namespace walsh::cuda
