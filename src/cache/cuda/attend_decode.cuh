// Reads a coded cache for decode attention (kernels/cuda/attention/decode.cuh). A warp takes its
// positions in tiles of 16. There are three kinds: stored positions (up to four tiles at a time),
// fp16 rows of the ring, and the first positions.
#pragma once

#include "cache/cuda/attend_decode.h"
#include "codec/scalar/words.h"
#include "kernels/cuda/attention/coded_tile.cuh"
#include "kernels/cuda/attention/decode.cuh"

namespace walsh::cuda::detail {

template <int Dim>
struct RowsShape {
  static constexpr int kWarps = Dim <= 128 ? 4 : 2;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kHalfTileBytes = kCacheTile * TileLayout<Dim>::kRowBytes;
  static constexpr int kResultStride = Dim + 4;
  // Results are placed after the memory that finish_part uses.
  static constexpr int kResults = PartsShape<Dim, kWarps>::kFloats;
  static_assert(kWarps * 2 * kHalfTileBytes >= (kResults + kTileHeads * kResultStride) * 4);
};

// Says which tiles a warp reads. Tiles are numbered: stored ones come first, then fp16 ones, then
// the first positions.
struct CodedPart : DecodePart {
  int first_stored, first_recent;  // They number tiles of 16 positions.
  int stored, recent;              // They count tiles of each kind.
  int first_tile, last_tile;       // This warp takes the tiles between them.

  __device__ __forceinline__ CodedPart(const CodedDecodeArgs& args, int warps, int warp)
      : DecodePart(args) {
    const int border = stored_end(args.cache, sequence, end - 1);
    first_stored = begin / kCacheTile;
    stored = max(0, border / kCacheTile - first_stored);
    first_recent = max(border, begin) / kCacheTile;
    recent = (end + kCacheTile - 1) / kCacheTile - first_recent;
    const int tiles = stored + recent + (border > 0 && sees_all(args.rule) ? 1 : 0);
    active = min(static_cast<int>(gridDim.x), (tiles + warps - 1) / warps);
    const int64_t all = int64_t{active} * warps, index = int64_t{blockIdx.x} * warps + warp;
    first_tile = static_cast<int>(index * tiles / all);
    last_tile = static_cast<int>((index + 1) * tiles / all);
  }

  __device__ int last_stored() const { return min(stored, last_tile); }
  // Returns how many stored tiles from `tile` on a step takes. They must lie in one page; `most` is
  // a power of two.
  __device__ int step(int tile, int most) const {
    return min(most - ((first_stored + tile) & (most - 1)), last_stored() - tile);
  }
};

// Copies fp16 rows to a tile, with zeros for positions outside [low, high).
template <int Dim>
__device__ __forceinline__ void copy_rows(const uint16_t* rows, int low, int high, uint32_t shared,
                                          int lane) {
  using Layout = TileLayout<Dim>;
#pragma unroll
  for (int i = lane; i < kCacheTile * Layout::kPieces; i += 32) {
    const int row = i / Layout::kPieces, piece = i % Layout::kPieces;
    copy_async_or_zero(shared + Layout::offset(row, piece),
                       rows + (row >= low && row < high ? row * Dim + piece * 8 : 0),
                       row >= low && row < high);
  }
}

// Copies `count` consecutive tiles.
template <int Dim>
__device__ __forceinline__ void copy_tiles(const CodedSide& side, int64_t tile, int count, int low,
                                           uint32_t shared, int lane) {
  const unsigned char* from = side.tiles + tile * side.tile_bytes;
  if (side.bits == 0) {
    for (int j = 0; j < count; ++j) {
      copy_rows<Dim>(reinterpret_cast<const uint16_t*>(from + j * side.tile_bytes),
                     low - j * kCacheTile, kCacheTile, shared + j * side.tile_bytes, lane);
    }
    return;
  }
  constexpr int kAtOnce = 4;  // A lane has this many copies in flight.
  const int bytes = count * side.tile_bytes;
  for (int first = 16 * lane; first < bytes; first += kAtOnce * 512) {
#pragma unroll
    for (int i = 0; i < kAtOnce * 512; i += 512)
      if (first + i < bytes) copy_async(shared + first + i, from + first + i);
  }
}

// Copies the stored tiles of a step to shared memory, keys before values.
template <int Dim>
__device__ __forceinline__ void copy_step(const CodedDecodeArgs& args, const CodedPart& part,
                                          int tile, int count, uint32_t shared, int lane) {
  const CodedView& cache = args.cache;
  const int32_t* pages = cache.pages + part.sequence * cache.per_sequence;
  const int at = part.first_stored + tile, low = part.begin - at * kCacheTile;
  const int64_t head = int64_t{pages[at / kPageTiles]} * cache.kv_heads + part.kv_head;
  const int64_t index = head * kPageTiles + at % kPageTiles;
  copy_tiles<Dim>(cache.keys, index, count, low, shared, lane);
  copy_tiles<Dim>(cache.values, index, count, low, shared + args.values_at, lane);
}

// Adds K Q^T to s for 16 positions with fp16 rows.
template <int Dim>
__device__ __forceinline__ void multiply_half_keys(const uint32_t (&q)[Dim / 16][2], uint32_t keys,
                                                   int lane, float (&s)[4]) {
  const int matrix = lane / 8, r = lane % 8;
  const uint32_t row = keys + TileLayout<Dim>::offset(r + 8 * (matrix & 1), matrix >> 1);
#pragma unroll
  for (int k = 0; k < Dim / 16; ++k) {
    uint32_t a[4];
    load_matrices(a, row ^ TileLayout<Dim>::step(k));
    mma_f16(s, a, q[k][0], q[k][1]);
  }
}

template <int Bits, int Dim>
__device__ __forceinline__ void multiply_coded_keys(const CodedSide& side,
                                                    const uint32_t (&q)[Dim / 16][2], uint32_t keys,
                                                    int lane, float (&s)[4]) {
  const uint32_t scales =
      keys + tile_code_bytes(Dim, Bits) + static_cast<uint32_t>(4 * (lane / 4) * side.groups);
  const uint32_t next = side.groups > 1 ? 4 : 0;
  uint32_t upper[4];
  float sum[4];
  decode_lane<Bits, Dim>(
      SharedWords{keys + 4 * lane}, side.levels, [&](int i, const uint32_t(&half)[4]) {
        if (i % 2 == 0) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            upper[e] = half[e];
            sum[e] = 0;
          }
          return;
        }
        const uint32_t first[4] = {upper[0], half[0], upper[1], half[1]};
        const uint32_t second[4] = {upper[2], half[2], upper[3], half[3]};
        mma_f16(sum, first, q[i - 1][0], q[i - 1][1]);
        mma_f16(sum, second, q[i][0], q[i][1]);
        const float2 scale = halves(shared_word(scales + next * static_cast<uint32_t>(i / 2)));
#pragma unroll
        for (int e = 0; e < 4; ++e)
          s[e] = __fmaf_rn(sum[e], e < 2 ? scale.x : scale.y, s[e]);
      });
}

template <int Dim>
__device__ __forceinline__ void multiply_half_values(uint32_t values, uint32_t b0, uint32_t b1,
                                                     int lane, Running<Dim>& run) {
  const int matrix = lane / 8, r = lane % 8;
  const uint32_t row = values + TileLayout<Dim>::offset(r + 8 * (matrix >> 1), matrix & 1);
#pragma unroll
  for (int d = 0; d < Dim / 16; ++d) {
    uint32_t a[4];
    load_transposed(a, row ^ TileLayout<Dim>::step(d));
    mma_f16(run.sum[d], a, b0, b1);
  }
}

// Adds the product of weights and stored values. Scales of hidden positions are masked, because a
// weight of 0 does not hide a NaN.
template <int Bits, int Dim>
__device__ __forceinline__ void multiply_coded_values(const CodedSide& side, uint32_t values,
                                                      uint32_t b0, uint32_t b1, int low, int lane,
                                                      Running<Dim>& run) {
  const uint32_t scales =
      values + tile_code_bytes(Dim, Bits) + static_cast<uint32_t>(8 * (lane % 4) * side.groups);
  const uint32_t next = side.groups > 1 ? 8 : 0;
  const uint32_t mask0 = seen_mask(2 * (lane % 4), low), mask1 = seen_mask(2 * (lane % 4) + 8, low);
  uint32_t p0 = 0, p1 = 0;
  decode_lane<Bits, Dim>(SharedWords{values + 4 * lane}, side.levels,
                         [&](int i, const uint32_t(&half)[4]) {
                           if (i % 2 == 0) {
                             const uint32_t at = scales + next * static_cast<uint32_t>(i / 2);
                             p0 = multiply_halves(b0, shared_word(at) & mask0);
                             p1 = multiply_halves(b1, shared_word(at + 4) & mask1);
                           }
                           const uint32_t a[4] = {half[0], half[2], half[1], half[3]};
                           mma_f16(run.sum[i], a, p0, p1);
                         });
}

// Holds a warp's queries as operand b. It also holds the products of queries and key offset for
// heads 2 t and 2 t + 1 of lane 4 g + t, which are added to the logits of stored positions.
template <int Dim>
struct RowQueries {
  uint32_t q[Dim / 16][2];
  float offset[2] = {0, 0};

  __device__ RowQueries(const CodedDecodeArgs& args, const CodedPart& part, int lane) {
    const int head = lane / 4, column = 2 * (lane % 4);
    const float* from = args.q + part.row * args.ldq + (part.first_head + head) * Dim;
    const float* offsets = args.cache.key_offsets;
    if (offsets != nullptr)
      offsets += (int64_t{part.sequence} * args.cache.kv_heads + part.kv_head) * Dim;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < Dim / 8; ++i) {
      float2 v = make_float2(0, 0);
      if (head < part.heads) v = *reinterpret_cast<const float2*>(from + 8 * i + column);
      q[i / 2][i % 2] = pack_halves(v.x, v.y);
      if (offsets == nullptr || part.stored == 0) continue;
      const float2 taken = *reinterpret_cast<const float2*>(offsets + 8 * i + column);
      sum = __fmaf_rn(v.x, taken.x, __fmaf_rn(v.y, taken.y, sum));
    }
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
#pragma unroll
    for (int h = 0; h < 2; ++h)
      offset[h] = __shfl_sync(~0u, sum, 4 * (2 * (lane % 4) + h));
  }
};

template <int Dim, bool Capped>
__device__ __forceinline__ void attend_stored_tile(const CodedDecodeArgs& args,
                                                   const RowQueries<Dim>& queries, uint32_t keys,
                                                   uint32_t values, int low, int lane,
                                                   Running<Dim>& run, float shift) {
  float s[4] = {queries.offset[0], queries.offset[1], queries.offset[0], queries.offset[1]};
  const CodedSide& key = args.cache.keys;
  if (key.bits == 0) {
    multiply_half_keys<Dim>(queries.q, keys, lane, s);
  } else {
    scalar::with_width(key.bits, [&](auto width) {
      multiply_coded_keys<decltype(width)::value, Dim>(key, queries.q, keys, lane, s);
    });
  }
  cap_logits<Capped>(args.rule, s);  // Here s includes the product with the key offset.
  uint32_t b0, b1;
  weigh_tile<Dim, true>(s, low, kCacheTile, args.rule.scale, lane, run, b0, b1, shift);
  const CodedSide& value = args.cache.values;
  if (value.bits == 0) {
    multiply_half_values<Dim>(values, b0, b1, lane, run);
  } else {
    scalar::with_width(value.bits, [&](auto width) {
      multiply_coded_values<decltype(width)::value, Dim>(value, values, b0, b1, low, lane, run);
    });
  }
}

// Processes tile `tile` of the fp16 rows, which are those of the ring, then the first positions.
template <int Dim, bool Capped>
__device__ __forceinline__ void attend_half_tile(const CodedDecodeArgs& args, const CodedPart& part,
                                                 const RowQueries<Dim>& queries, int tile,
                                                 uint32_t shared, int lane, Running<Dim>& run,
                                                 float shift) {
  const CodedView& cache = args.cache;
  const int64_t head = int64_t{part.sequence} * cache.kv_heads + part.kv_head;
  const bool recent = tile < part.recent;
  const int first = recent ? (part.first_recent + tile) * kCacheTile : 0;
  const int low = recent ? part.begin - first : 0,
            high = recent ? part.end - first : kLeadingPositions;
  const int64_t row = recent ? head * cache.ring + first % cache.ring : head * kLeadingPositions;
  const uint32_t values = shared + RowsShape<Dim>::kHalfTileBytes;
  copy_rows<Dim>((recent ? cache.keys.ring : cache.keys.leading) + row * Dim, low, high, shared,
                 lane);
  copy_rows<Dim>((recent ? cache.values.ring : cache.values.leading) + row * Dim, low, high, values,
                 lane);
  copy_commit();
  copy_wait<0>();
  __syncwarp();
  float s[4] = {};
  multiply_half_keys<Dim>(queries.q, shared, lane, s);
  cap_logits<Capped>(args.rule, s);
  uint32_t b0, b1;
  weigh_tile<Dim, true>(s, low, high, args.rule.scale, lane, run, b0, b1, shift);
  multiply_half_values<Dim>(values, b0, b1, lane, run);
  __syncwarp();
}

// Processes all tiles of a warp: stored ones through its ring, then the others, which are few.
template <int Dim, bool Capped>
__device__ __forceinline__ void attend_part(const CodedDecodeArgs& args, const CodedPart& part,
                                            uint32_t ring, int lane, Running<Dim>& run,
                                            float shift) {
  const int last = part.last_stored();
  int next = part.first_tile;
  uint32_t into = ring;
  const uint32_t ring_end = ring + static_cast<uint32_t>(kRowStages * args.stage_bytes);
  const auto advance = [&](uint32_t& stage) {
    stage += static_cast<uint32_t>(args.stage_bytes);
    if (stage == ring_end) stage = ring;
  };
  const auto issue = [&] {
    if (next < last) {
      const int count = part.step(next, args.most_tiles);
      copy_step<Dim>(args, part, next, count, into, lane);
      next += count;
    }
    advance(into);
    copy_commit();
  };
  // The preceding kernel may have stored the last bundle. Older bundles are complete, because all
  // kernels of earlier steps ended before this step's first kernel let others start.
  const int complete = part.stored - kCacheBundle / kCacheTile;
  bool waited = false;
#pragma unroll
  for (int i = 0; i < kRowStages - 1; ++i) {
    if (!waited && min(last, next + args.most_tiles) > complete) {
      wait_previous_kernel();
      waited = true;
    }
    issue();
  }
  if (!waited) wait_previous_kernel();
  const RowQueries<Dim> queries(args, part, lane);
  uint32_t stage = ring;
  for (int tile = part.first_tile; tile < last;) {
    issue();
    copy_wait<kRowStages - 1>();
    __syncwarp();
    const int count = part.step(tile, args.most_tiles);
    const CodedView& cache = args.cache;
    for (int j = 0; j < count; ++j) {
      const int first = (part.first_stored + tile + j) * kCacheTile;
      const int low = max(part.begin, sees_all(args.rule) ? kLeadingPositions : 0) - first;
      attend_stored_tile<Dim, Capped>(args, queries, stage + cache.keys.tile_bytes * j,
                                      stage + args.values_at + cache.values.tile_bytes * j, low,
                                      lane, run, shift);
    }
    __syncwarp();
    advance(stage);
    tile += count;
  }
  copy_wait<0>();
  __syncwarp();
  for (int tile = max(part.first_tile, part.stored); tile < part.last_tile; ++tile)
    attend_half_tile<Dim, Capped>(args, part, queries, tile - part.stored, ring, lane, run, shift);
}

// Rotates a head's result back and writes it. Lanes have neighbouring columns.
template <int Dim>
__device__ __forceinline__ void store_head(const CodedSide& side, const float* from, float* out,
                                           int lane) {
  constexpr int kColumns = Dim / 32;
  float v[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c)
    v[c] = from[kColumns * lane + c];
  if (side.block != 0) {
#pragma unroll
    for (int distance = 1; distance < kColumns; distance *= 2) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if ((c & distance) != 0) continue;
        const float a = v[c], b = v[c + distance];
        v[c] = a + b;
        v[c + distance] = a - b;
      }
    }
    for (int distance = 1; distance * kColumns < side.block; distance *= 2) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const float other = __shfl_xor_sync(~0u, v[c], distance);
        v[c] = (lane & distance) != 0 ? other - v[c] : v[c] + other;
      }
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      v[c] *= side.factors[kColumns * lane + c];
  }
#pragma unroll
  for (int c = 0; c < kColumns; c += 2)
    *reinterpret_cast<float2*>(out + kColumns * lane + c) = make_float2(v[c], v[c + 1]);
}

template <int Dim>
class CodedReader {
  using Shape = RowsShape<Dim>;

 public:
  using Args = CodedDecodeArgs;
  static constexpr int kDim = Dim, kWarps = Shape::kWarps, kThreads = Shape::kThreads;
  static constexpr int kBlocks = row_blocks(Dim);

  __device__ __forceinline__ CodedReader(const Args& args, unsigned char* memory, int warp,
                                         int lane)
      : a_(args), part_(args, kWarps, warp), memory_(memory), warp_(warp), lane_(lane) {}

  __device__ __forceinline__ const DecodePart& part() const { return part_; }

  template <bool Capped>
  __device__ __forceinline__ void attend(Running<Dim>& run) const {
    const uint32_t ring = shared_address(memory_) + static_cast<uint32_t>(warp_ * a_.ring_bytes);
    for (float shift = kWeightShift;; shift = 0) {
      run = {};
      attend_part<Dim, Capped>(a_, part_, ring, lane_, run, shift);
      if (shift == 0 || unshift(run)) break;
    }
  }

  // Results are gathered in shared memory, since their rotation takes whole heads.
  __device__ __forceinline__ void take(int head, int column, const float4& sum,
                                       float factor) const {
    store_scaled(results() + head * Shape::kResultStride + column, sum, factor);
  }
  __device__ __forceinline__ void finish() const {
    __syncthreads();
    float* out = a_.out + part_.row * a_.ldo + part_.first_head * Dim;
    for (int head = warp_; head < part_.heads; head += kWarps)
      store_head<Dim>(a_.cache.values, results() + head * Shape::kResultStride, out + head * Dim,
                      lane_);
  }

 private:
  __device__ __forceinline__ float* results() const {
    return reinterpret_cast<float*>(memory_) + Shape::kResults;
  }

  const Args& a_;
  const CodedPart part_;
  unsigned char* const memory_;
  const int warp_, lane_;
};

template <int Dim>
void launch_rows(const CodedDecodeArgs& args, int splits, Stream stream) {
  launch_decode<CodedReader<Dim>>(args, args.cache.kv_heads, splits,
                                  static_cast<size_t>(RowsShape<Dim>::kWarps * args.ring_bytes),
                                  stream);
}

}  // namespace walsh::cuda::detail
