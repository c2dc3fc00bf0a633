#include "kernels/cuda/attention/latent_prompt.h"

#include <algorithm>
#include <string>

#include "base/checked.h"
#include "kernels/cuda/attention/prefill.h"
#include "kernels/cuda/attention/tile.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows/rope.cuh"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

struct ExpandArgs {
  // These are pools [page][kPageTokens][rank] and [..][turned].
  const uint16_t *latents, *shared_keys;
  const int32_t* pages;  // This table has the pages of all sequences.
  int64_t per_sequence;
  const int32_t* sequences;  // A prompt's rows have these sequences.
  int rank, turned;
  int key_dim, value_dim;  // They are sizes of heads.
  int heads;
  int begin, end;     // They are positions, from the beginning of a page on.
  const void* parts;  // These are the heads' parts of the matrix k or v.
  // It has the shape [page][heads][kPageTokens][key_dim] or [..][value_dim].
  uint16_t* to;
  int32_t* table;  // It lists the pages of `to`.
};

constexpr int kWarps = 8, kThreads = kWarps * 32;
// A block has this many positions and values of a head.
constexpr int kRows = 128, kColumns = 128;
constexpr int kDepth = 64, kStages = 3;  // A step has kDepth columns of latents.
constexpr int kWarpRows = 32, kWarpColumns = 64;
constexpr int kLatentBytes = kRows * kDepth * 2, kPartBytes = kColumns * kDepth * 2;
constexpr int kStageBytes = kLatentBytes + kPartBytes;
static_assert(kRows / kWarpRows * (kColumns / kWarpColumns) == kWarps);

struct Bf16 {
  uint16_t bits;
};

// Rounds eight numbers to halves.
__device__ __forceinline__ uint4 eight_halves(const float* from) {
  const float4 a = reinterpret_cast<const float4*>(from)[0];
  const float4 b = reinterpret_cast<const float4*>(from)[1];
  return make_uint4(pack_halves(a.x, a.y), pack_halves(a.z, a.w), pack_halves(b.x, b.y),
                    pack_halves(b.z, b.w));
}
__device__ __forceinline__ uint32_t two_halves(uint32_t both) {
  return pack_halves(__uint_as_float(both << 16), __uint_as_float(both & 0xffff0000u));
}
__device__ __forceinline__ uint4 eight_halves(const Bf16* from) {
  const uint4 v = *reinterpret_cast<const uint4*>(from);
  return make_uint4(two_halves(v.x), two_halves(v.y), two_halves(v.z), two_halves(v.w));
}

// Copies eight numbers to shared memory at `offset` of a tile, or writes zeros.
__device__ __forceinline__ void copy_eight(unsigned char* tile, uint32_t offset, const __half* from,
                                           bool copy) {
  copy_async_or_zero(shared_address(tile) + offset, from, copy);
}
template <typename T>
__device__ __forceinline__ void copy_eight(unsigned char* tile, uint32_t offset, const T* from,
                                           bool copy) {
  *reinterpret_cast<uint4*>(tile + offset) = copy ? eight_halves(from) : make_uint4(0, 0, 0, 0);
}

// Multiplies a tile of latents with a head's part of k or v. The part of k is transposed, so its
// tiles have rows of kColumns values; those of v have rows of kDepth values.
template <typename T, bool Keys>
class HeadTile {
  using Latents = TileLayout<kDepth>;
  using Part = TileLayout<Keys ? kColumns : kDepth>;

 public:
  __device__ __forceinline__ HeadTile(const ExpandArgs& args, unsigned char* memory, int head,
                                      int column)
      : a_(args),
        memory_(memory),
        thread_(static_cast<int>(threadIdx.x)),
        head_(head),
        column_(column),
        position_(args.begin + static_cast<int>(blockIdx.x) * kRows),
        width_(Keys ? args.key_dim - args.turned : args.value_dim),
        pages_(args.pages + args.sequences[0] * args.per_sequence) {}

  __device__ __forceinline__ void run() {
    const int steps = (a_.rank + kDepth - 1) / kDepth;
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i)
      load(i, steps, i);
    int stage = 0;
    for (int step = 0; step < steps; ++step) {
      copy_wait<kStages - 2>();
      __syncthreads();
      load(step + kStages - 1, steps, stage == 0 ? kStages - 1 : stage - 1);
      multiply(stage);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    copy_wait<0>();
    store();
  }

 private:
  __device__ __forceinline__ void load(int step, int steps, int stage) const {
    if (step < steps) {
      unsigned char* const to = memory_ + stage * kStageBytes;
      load_latents(step * kDepth, to);
      load_part(step * kDepth, to + kLatentBytes);
    }
    copy_commit();
  }

  __device__ __forceinline__ void load_latents(int first, unsigned char* to) const {
#pragma unroll
    for (int i = thread_; i < kRows * Latents::kPieces; i += kThreads) {
      const int row = i / Latents::kPieces, piece = i % Latents::kPieces;
      const int position = position_ + row, at = first + 8 * piece;
      const bool copy = position < a_.end && at < a_.rank;
      const uint16_t* from = a_.latents;
      if (copy) {
        const int64_t page = pages_[position / kPageTokens];
        from += (page * kPageTokens + position % kPageTokens) * a_.rank + at;
      }
      copy_async_or_zero(shared_address(to) + Latents::offset(row, piece), from, copy);
    }
  }

  __device__ __forceinline__ void load_part(int first, unsigned char* to) const {
    const T* part = static_cast<const T*>(a_.parts) + int64_t{head_} * width_ * a_.rank;
#pragma unroll
    for (int i = thread_; i < kColumns * kDepth / 8; i += kThreads) {
      const int row = i / Part::kPieces, piece = i % Part::kPieces;
      // It is a column of the latent.
      const int at = Keys ? first + row : first + 8 * piece;
      const int column = Keys ? column_ + 8 * piece : column_ + row;  // It is a column of the head.
      const bool copy = at < a_.rank && column < width_;
      const int64_t place = Keys ? int64_t{at} * width_ + column : int64_t{column} * a_.rank + at;
      copy_eight(to, Part::offset(row, piece), part + (copy ? place : 0), copy);
    }
  }

  __device__ __forceinline__ int warp_row() const {
    return thread_ / 32 % (kRows / kWarpRows) * kWarpRows;
  }
  __device__ __forceinline__ int warp_column() const {
    return thread_ / 32 / (kRows / kWarpRows) * kWarpColumns;
  }

  __device__ __forceinline__ void multiply(int stage) {
    const int matrix = thread_ % 32 / 8, r = thread_ % 8;
    const uint32_t latents = shared_address(memory_) + static_cast<uint32_t>(stage * kStageBytes);
    const uint32_t part = latents + kLatentBytes;
    const uint32_t latent_row =
        latents + Latents::offset(warp_row() + r + 8 * (matrix & 1), matrix >> 1);
    const uint32_t part_row =
        Keys ? (part + Part::offset(r + 8 * (matrix & 1), matrix >> 1)) ^
                   Part::step(warp_column() / 16)
             : part + Part::offset(warp_column() + r + 8 * (matrix >> 1), matrix & 1);
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k) {
      uint32_t a[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        load_matrices(a[i], (latent_row ^ Latents::step(k)) + i * 16 * Latents::kRowBytes);
#pragma unroll
      for (int n = 0; n < kWarpColumns / 16; ++n) {
        uint32_t b[4];
        if constexpr (Keys) {
          load_transposed(b, (part_row ^ Part::step(n)) + k * 16 * Part::kRowBytes);
        } else {
          load_matrices(b, (part_row ^ Part::step(k)) + n * 16 * Part::kRowBytes);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          mma_f16(sum_[i][2 * n], a[i], b[0], b[1]);
          mma_f16(sum_[i][2 * n + 1], a[i], b[2], b[3]);
        }
      }
    }
  }

  // Returns the place of a head's values at a position.
  __device__ __forceinline__ uint16_t* place(int position) const {
    const int64_t row =
        (int64_t{position / kPageTokens} * a_.heads + head_) * kPageTokens + position % kPageTokens;
    return a_.to + row * (Keys ? a_.key_dim : a_.value_dim);
  }

  __device__ __forceinline__ void store() const {
    const int lane = thread_ % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int position = position_ + warp_row() + 16 * i + lane / 4 + 8 * half;
        if (position >= a_.end) continue;
        uint16_t* to = place(position) + (Keys ? a_.turned : 0);
#pragma unroll
        for (int d = 0; d < kWarpColumns / 8; ++d) {
          const int column = column_ + warp_column() + 8 * d + 2 * (lane % 4);
          if (column >= width_) break;
          *reinterpret_cast<__half2*>(to + column) = __half2{
              kept_half(sum_[i][d][2 * half], Keys), kept_half(sum_[i][d][2 * half + 1], Keys)};
        }
      }
    }
    if (Keys && column_ == 0) copy_shared_keys();
  }

  __device__ __forceinline__ void copy_shared_keys() const {
    const int pieces = a_.turned / 8;
    for (int i = thread_; i < kRows * pieces; i += kThreads) {
      const int position = position_ + i / pieces, piece = i % pieces;
      if (position >= a_.end) break;
      const int64_t page = pages_[position / kPageTokens];
      const uint16_t* from =
          a_.shared_keys + (page * kPageTokens + position % kPageTokens) * a_.turned;
      reinterpret_cast<uint4*>(place(position))[piece] =
          reinterpret_cast<const uint4*>(from)[piece];
    }
  }

  const ExpandArgs& a_;
  unsigned char* const memory_;
  const int thread_, head_, column_, position_, width_;
  const int32_t* const pages_;
  float sum_[2][kWarpColumns / 8][4] = {};
};

// Multiplies one tile per block. The grid spans blocks of positions in x, and tiles of the keys or
// values of every head in y.
template <typename T, bool Keys>
__global__ void __launch_bounds__(kThreads, 2)
    expand_kernel(const __grid_constant__ ExpandArgs args) {
  WALSH_SHARED_TILES(memory);
  allow_next_kernel();
  wait_previous_kernel();
  const int tiles = static_cast<int>(gridDim.y) / args.heads;
  const int head = static_cast<int>(blockIdx.y) / tiles;
  const int tile = static_cast<int>(blockIdx.y) % tiles;
  const int page = (args.begin + static_cast<int>(blockIdx.x) * kRows) / kPageTokens +
                   static_cast<int>(threadIdx.x);
  const bool in_table = threadIdx.x < kRows / kPageTokens && page * kPageTokens < args.end;
  if (blockIdx.y == 0 && in_table) args.table[page] = page;
  HeadTile<T, Keys>(args, memory, head, tile * kColumns).run();
}

// Makes the keys or values of `heads` heads from `first_head` on, for the positions [begin, end).
template <bool Keys>
void expand(const LatentPrompt& call, const HeadScratch& scratch, int first_head, int heads,
            int64_t begin, Stream stream) {
  const KvPool& pool = *call.cache;
  const DType type = Keys ? call.key_type : call.value_type;
  const int width = Keys ? call.key_dim - pool.head_dim : call.value_dim;
  const int64_t first = int64_t{first_head} * pool.value_dim * width * dtype_size(type);
  ExpandArgs args;
  args.latents = pool.values.as<const uint16_t>();
  args.shared_keys = pool.keys.as<const uint16_t>();
  args.pages = call.table.pages;
  args.per_sequence = call.table.per_sequence;
  args.sequences = call.rows.sequences;
  args.rank = pool.value_dim;
  args.turned = pool.head_dim;
  args.key_dim = call.key_dim;
  args.value_dim = call.value_dim;
  args.heads = heads;
  args.begin = static_cast<int>(begin);
  args.end = static_cast<int>(call.end);
  args.parts = static_cast<const unsigned char*>(Keys ? call.key_parts : call.value_parts) + first;
  args.to = Keys ? scratch.keys() : scratch.values();
  args.table = scratch.pages();
  const int64_t blocks = (call.end - begin + kRows - 1) / kRows;
  const int tiles = (width + kColumns - 1) / kColumns;
  const LaunchShape shape{dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(heads * tiles)),
                          dim3(kThreads), kStages * kStageBytes};
  const auto kernel = type == DType::f32    ? expand_kernel<float, Keys>
                      : type == DType::bf16 ? expand_kernel<Bf16, Keys>
                                            : expand_kernel<__half, Keys>;
  launch("keys and values of latents", kernel, shape, stream, args);
}

// Computes attention with the heads whose keys and values are in the scratch memory.
void attend_heads(const LatentPrompt& call, const HeadScratch& scratch, int first_head, int heads,
                  Stream stream) {
  const AttentionRows part = call.part_of_heads(first_head, heads, call.key_dim, call.value_dim);
  detail::PagePrefillArgs args{detail::row_args(part, heads, call.key_dim), {}};
  args.value_dim = call.value_dim;
  args.cache.keys = scratch.keys();
  args.cache.values = scratch.values();
  args.cache.kv_heads = heads;
  args.cache.head_dim = call.key_dim;
  args.cache.pages = scratch.pages();  // One sequence has them all.
  detail::launch_prefill_mma(args, stream);
}

}  // namespace

HeadScratch::HeadScratch(int64_t capacity, int heads, int key_dim, int value_dim,
                         uint64_t most_bytes) {
  const int64_t pages = (capacity + kPageTokens - 1) / kPageTokens;
  const auto bytes = [&](int64_t dim) {
    return checked_mul(static_cast<uint64_t>(pages), static_cast<uint64_t>(kPageTokens * dim * 2),
                       "GPU workspaces");
  };
  const uint64_t head_bytes = std::max<uint64_t>(1, bytes(key_dim + value_dim));
  const auto most = static_cast<int64_t>(most_bytes / head_bytes);
  const int64_t at_once = std::clamp(most, std::min<int64_t>(heads, kFewHeads), int64_t{heads});
  head_pages_ = at_once * pages;
  keys_ = Buffer(static_cast<uint64_t>(at_once) * bytes(key_dim));
  values_ = Buffer(static_cast<uint64_t>(at_once) * bytes(value_dim));
  pages_ = Buffer(static_cast<uint64_t>(pages) * sizeof(int32_t));
}

int HeadScratch::heads_of(int64_t positions) const {
  const int64_t pages = (positions + kPageTokens - 1) / kPageTokens;
  return static_cast<int>(std::max<int64_t>(1, head_pages_ / std::max<int64_t>(1, pages)));
}

bool takes_prompts(int64_t shared_key, int64_t key_dim, int64_t value_dim) {
  return key_dim % 8 == 0 && value_dim % 8 == 0 && std::max(key_dim, value_dim) <= kMaxHeadDim &&
         shared_key < key_dim;
}

void attend_latent_prompt(const LatentPrompt& call, const HeadScratch& scratch, Stream stream) {
  if (call.m == 0) return;
  if (!takes_prompts(call.cache->head_dim, call.key_dim, call.value_dim)) {
    throw Error(ErrorCode::internal, "GPU attention",
                "heads of " + std::to_string(call.key_dim) + " and " +
                    std::to_string(call.value_dim) + " values of latents");
  }
  const int64_t oldest = call.options.first_seen(call.end - call.m);
  const int64_t begin = oldest / kPageTokens * kPageTokens;
  const int most = std::min(scratch.heads_of(call.end), call.heads);
  const int pieces = (call.heads + most - 1) / most;
  const int of_piece = (call.heads + pieces - 1) / pieces;
  for (int head = 0; head < call.heads; head += of_piece) {
    const int heads = std::min(of_piece, call.heads - head);
    expand<true>(call, scratch, head, heads, begin, stream);
    expand<false>(call, scratch, head, heads, begin, stream);
    attend_heads(call, scratch, head, heads, stream);
  }
}

}  // namespace walsh::cuda
