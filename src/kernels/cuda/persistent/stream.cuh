// Streams the weights of a step's products, one stream per warp. As far as possible, codes are
// known when a kernel is compiled. There is one code for all products, or several; then each
// product of a phase says which it has.
#pragma once

#include <algorithm>
#include <tuple>

#include "kernels/cuda/gemv/k_tile_dot.cuh"
#include "kernels/cuda/persistent/phase.h"

namespace walsh::cuda {

template <typename Decoder, int Flush>
struct OneCode {
  static constexpr int kRows = 1;
  static constexpr bool kSeveral = false;
  static constexpr bool kExperts = false, kMixers = false;
  static constexpr int kCodedDim = 0;
  static constexpr ProgramMemory kMemory = program_memory(Decoder::kVectors, Flush);
  using KTile = KTileDot<Decoder, Flush, 0>;
  // Reads inputs in the doubled order (ProgramPhase::doubled), as only trellis codes do.
  using Doubled = KTileDot<Decoder, Flush, 0, KTilePlaces<Decoder::kVectors, Flush, true>>;
  static constexpr bool kDoubles = Doubled::kDoubled;
};

// Describes several codes. All k-tiles take as much room as the largest one. Flush is 32 if codes
// of both kinds occur, and 128 if all have it.
template <int Flush, typename... Decoders>
struct SeveralCodes {
  static constexpr int kRows = 1;
  static constexpr bool kSeveral = true, kDoubles = false;
  static constexpr bool kExperts = false, kMixers = false;
  static constexpr int kCodedDim = 0;
  static constexpr int kVectors = std::max({Decoders::kVectors...});
  static constexpr ProgramMemory kMemory = program_memory(kVectors, Flush);

  template <typename Decoder, int F>
  using KTileOf = KTileDot<Decoder, F, 0, KTilePlaces<kVectors, Flush>>;
  // Has what is the same for all codes.
  using KTile = KTileOf<std::tuple_element_t<0, std::tuple<Decoders...>>, Flush>;

  // Calls body.operator()<KTile>() with the k-tile of a code.
  template <typename Body>
  static __device__ __forceinline__ void with_k_tile(const PhaseCode& code, const Body& body) {
    if (Flush == 32 && code.flush == 32) {
      select<32>(code, body);
    } else {
      select<128>(code, body);
    }
  }

 private:
  template <int F, typename Body>
  static __device__ __forceinline__ void select(const PhaseCode& code, const Body& body) {
    ((code.decoder == Decoders::kKind ? (body.template operator()<KTileOf<Decoders, F>>(), true)
                                      : false) ||
     ...);
  }
};

struct NarrowCodes : SeveralCodes<128, ScalarDecoder<2>, ScalarDecoder<3>, ScalarDecoder<4>> {};
struct WideCodes
    : SeveralCodes<32, ScalarDecoder<2>, ScalarDecoder<3>, ScalarDecoder<4>, ScalarDecoder<8>> {};
struct TrellisCodes
    : SeveralCodes<128, ScalarDecoder<2>, ScalarDecoder<3>, ScalarDecoder<4>, TrellisDecoder<4>,
                   TrellisDecoder<5>, TrellisDecoder<6>, TrellisDecoder<7>, TrellisDecoder<8>> {};
static_assert(NarrowCodes::kMemory == program_memory_of_several(false));
static_assert(TrellisCodes::kMemory == program_memory_of_several(false));
static_assert(WideCodes::kMemory == program_memory_of_several(true));

// Has the same codes for programs with experts. These have kernels of their own, so that the
// kernels of models without experts do not become longer.
template <typename Codes>
struct WithExperts : Codes {
  static constexpr bool kExperts = true;
};

// Has the same codes for programs with other mixers than attention of whole heads. These are delta
// nets, and attention with gates, with partly turned heads, or with heads of 256 values.
template <typename Codes>
struct WithMixers : Codes {
  static constexpr bool kMixers = true;
};

// Has the same codes for programs that attend to a coded cache of heads of this size. If one kernel
// had the functions of both kinds of attention, or of several sizes, its products and these
// functions would lose registers.
template <typename Codes, int Dim>
struct WithCodedCache : Codes {
  static constexpr int kCodedDim = Dim;
};

// Has the same codes for several rows, with a deep ring or a less deep one.
template <typename Codes, int Rows, bool Deep>
struct WithRows;
template <typename Decoder, int Flush, int Rows, bool Deep>
struct WithRows<OneCode<Decoder, Flush>, Rows, Deep> : OneCode<Decoder, Flush> {
  static_assert(Rows == 2 || Rows == 4);
  static constexpr int kRows = Rows;
  static constexpr ProgramMemory kMemory = program_memory(Decoder::kVectors, Flush, Rows, Deep);
  using KTile = KTileDot<Decoder, Flush, 1, KTilePlaces<Decoder::kVectors, Flush, false, Rows>>;
  static_assert(!OneCode<Decoder, Flush>::kDoubles);
};

// Holds the k-tiles of a warp in one matrix. Codes, scales and offsets are contiguous, each from
// the first k-tile on.
struct StreamPiece {
  const uint4* codes;
  const std::byte* scales;
  const std::byte* offsets;
  uint16_t count;
  uint8_t last;  // It says whether this is the last piece of the phase.
  uint8_t scale_vectors, offset_vectors;
  uint8_t code_words;  // A lane has this many per k-tile.
  uint8_t slot;        // It is the slot in the choice of experts, if it is an expert's matrix.
};

// Says which k-tiles a warp has in a phase.
struct alignas(16) PhaseRun {
  // Are those of the first one: its index among the block's tiles, and in the tile.
  int tile, k_tile;
  int count;
};

// Holds the work of all warps of a block in a phase.
struct PhaseWork {
  PhaseRun run[kProgramWarps];
  StreamPiece piece[kProgramWarps][kMaxMatmuls];
};
static_assert(sizeof(PhaseWork) == kWorkBytes);

// Returns the tiles of this block.
template <bool Several>
__device__ __forceinline__ TileRound tiles_of_block(const ProgramPhase& phase) {
  const GemvArgs& args = phase.gemv;
  if constexpr (Several) {
    TileRound r{};
    r.first = phase.first_tile;
    r.tiles = phase.tiles;
    r.k_tiles = args.k_tiles;
    return r;
  }
  const int block = static_cast<int>(blockIdx.x);
  TileRound r{};
  r.first = block * args.tiles_per_block + min(block, args.blocks_with_more);
  r.tiles = args.tiles_per_block + (block < args.blocks_with_more);
  r.k_tiles = args.k_tiles;
  return r;
}

// Holds the first addresses of the arrays of a matrix.
struct StreamArrays {
  const uint4* codes;
  const std::byte* scales;
  const std::byte* offsets;
};

// Describes `count` k-tiles of a matrix of set `s`, starting at k-tile `k_tile`.
template <typename Codes>
__device__ __forceinline__ void place_piece(const ProgramPhase& phase, int s,
                                            const StreamArrays& of, int64_t k_tile, int count,
                                            StreamPiece& piece) {
  piece.count = static_cast<uint16_t>(count);
  piece.last = 0;
  if constexpr (Codes::kSeveral) {
    const PhaseCode& code = phase.code[s];
    piece.codes = of.codes + k_tile * (code.words * 8);
    piece.scales = of.scales + k_tile * (code.scale_vectors * 16);
    piece.offsets = of.offsets + k_tile * (code.offset_vectors * 16);
    piece.scale_vectors = code.scale_vectors;
    piece.offset_vectors = code.offset_vectors;
    piece.code_words = code.words;
  } else {
    const GemvArgs& args = phase.gemv;
    piece.codes = of.codes + k_tile * Codes::KTile::kStride;
    piece.scales = of.scales + k_tile * args.scale_step;
    piece.offsets = of.offsets + k_tile * args.offset_step;
    piece.scale_vectors = static_cast<uint8_t>(args.scale_vectors);
    piece.offset_vectors = static_cast<uint8_t>(args.offset_vectors);
  }
}

// Computes the work of a warp in a phase.
template <typename Codes>
__device__ __forceinline__ void find_work(const ProgramPhase& phase, int warp, PhaseWork& work) {
  StreamPiece* const pieces = work.piece[warp];
  if (phase.kind != PhaseKind::matmul) {
    pieces[0].count = 0;
    pieces[0].last = 1;
    return;
  }
  const GemvArgs& args = phase.gemv;
  TileRound r = tiles_of_block<Codes::kSeveral>(phase);
  r.share(warp, kProgramWarps);
  const int tile = divide(r.begin, r.k_tiles);
  work.run[warp] = {tile, r.begin - tile * r.k_tiles, r.end - r.begin};
  const int begin = r.first * r.k_tiles + r.begin, end = r.first * r.k_tiles + r.end;
  int count = 0;
  for (int s = 0; s < kMaxMatmuls; ++s) {
    const TileSet& set = args.set[s];
    const int first = min(set.first_tile, args.tiles) * r.k_tiles;
    const int next = s + 1 < kMaxMatmuls ? args.set[s + 1].first_tile : args.tiles;
    const int from = max(begin, first), to = min(end, min(next, args.tiles) * r.k_tiles);
    if (from >= to) continue;
    const StreamArrays of{set.codes, set.scales, set.offsets};
    place_piece<Codes>(phase, s, of, from - first, to - from, pieces[count++]);
  }
  if (count == 0) pieces[count++].count = 0;
  pieces[count - 1].last = 1;
}

// Holds the phases that are in shared memory: from the current one up to `known`.
struct PhaseQueue {
  ProgramPhase* slots;
  PhaseWork* works;
  int known;

  static_assert((kKnownPhases & (kKnownPhases - 1)) == 0);
  __device__ ProgramPhase& operator[](int phase) const { return slots[phase & (kKnownPhases - 1)]; }
  __device__ PhaseWork& work(int phase) const { return works[phase & (kKnownPhases - 1)]; }
  __device__ const StreamPiece& piece(int phase, int warp, int i) const {
    return work(phase).piece[warp][i];
  }
};

// Keeps the state of a stream while a phase without weights needs the registers.
struct ParkedStream {
  uint32_t oldest;  // It counts back from the end of the ring.
  int ahead, phase, piece, left;
};

// Holds the k-tiles of all products, in the order in which this warp needs them, in a ring. The
// ring is filled as far ahead as phases are known.
template <typename Codes>
class WeightStream {
 public:
  using KTile = typename Codes::KTile;
  static constexpr ProgramMemory kMemory = Codes::kMemory;
  static constexpr int kStages = kMemory.stages;
  static constexpr uint32_t kRingBytes = kStages * kMemory.stage_bytes;

  __device__ WeightStream(std::byte* rings, int warp, int lane)
      : warp_(warp),
        lane_(lane),
        end_of_ring_(shared_address(rings) + (warp + 1) * kRingBytes + lane * 16),
        oldest_(end_of_ring_ - kRingBytes) {}

  __device__ __forceinline__ void park(ParkedStream& to) const {
    if (lane_ == 0) to = {end_of_ring_ - oldest_, ahead_, phase_, piece_, left_};
    __syncwarp();
  }

  __device__ __forceinline__ void resume(const ParkedStream& from, const PhaseQueue& phases) {
    oldest_ = end_of_ring_ - from.oldest;
    ahead_ = from.ahead;
    phase_ = from.phase;
    piece_ = from.piece;
    left_ = 0;
    codes_ = nullptr;  // The compiler then keeps none of these alive through the other phase.
    side_ = nullptr;
    side_place_ = side_step_ = code_words_ = 0;
    if (from.left > 0) begin_piece(phases, from.left);
  }

  // Requests k-tiles until the ring is full or no more are known.
  __device__ __forceinline__ void fill(const PhaseQueue& phases) {
#pragma unroll 1
    while (ahead_ < kStages && has_piece(phases)) {
      uint32_t slot = oldest_ + ahead_ * kMemory.stage_bytes;
      if (slot >= end_of_ring_) slot -= kRingBytes;
      fetch(slot);
      ++ahead_;
      --left_;
    }
  }

  // Pads the ring: if it is not full, waits count as if it were, until each of its k-tiles has been
  // replaced.
  __device__ __forceinline__ void pad() const {
#pragma unroll
    for (int i = 0; i < kStages; ++i)
      if (i >= ahead_) copy_commit();
  }

  // Passes the places without k-tiles of a padded ring, of whose `count` k-tiles all have been
  // read.
  __device__ __forceinline__ void pass_padding(int count) {
    if (count >= kStages) return;
    oldest_ += (kStages - count) * kMemory.stage_bytes;
    if (oldest_ >= end_of_ring_) oldest_ -= kRingBytes;
  }

  // Returns how many of the next `count` k-tiles can be treated alike. `replaces` tells whether
  // each is replaced in the ring once it has been read.
  __device__ __forceinline__ int piece(const PhaseQueue& phases, int count, bool& replaces) {
    replaces = has_piece(phases);
    if (!replaces) {
      copy_wait<0>();
      ahead_ -= count;
      return count;
    }
    count = min(count, left_);
    left_ -= count;
    return count;
  }

  // Waits for the oldest k-tiles and returns the place of this lane's codes of the first one.
  template <int KTiles>
  __device__ __forceinline__ uint32_t oldest() const {
    copy_wait<kStages - KTiles>();
    __syncwarp();
    return oldest_;
  }

  // Returns the place behind `slot` in the ring.
  __device__ __forceinline__ uint32_t next(uint32_t slot) const {
    slot += kMemory.stage_bytes;
    return slot == end_of_ring_ ? slot - kRingBytes : slot;
  }

  // Marks the oldest k-tiles as read by this lane, and requests others in their places if
  // `replaces`.
  template <int KTiles>
  __device__ __forceinline__ void replace_oldest(bool replaces) {
    __syncwarp();
    const uint32_t second = next(oldest_);
    if (replaces) {
      fetch(oldest_);
      if (KTiles == 2) fetch(second);
    }
    oldest_ = KTiles == 2 ? next(second) : second;
  }

 private:
  __device__ __forceinline__ void fetch(uint32_t slot) {
    if constexpr (Codes::kSeveral) {
#pragma unroll
      for (int v = 0; v < Codes::kVectors; ++v)
        if (v < 2 || 4 * v + (lane_ < 16 ? 2 : 4) <= code_words_)
          copy_async(slot + v * 512, codes_ + v * 32);
      if (side_place_ >= 0) copy_async(slot + side_place_, side_);
      codes_ += code_words_ * 8;
    } else {
      KTile::copy_k_tile(slot, codes_, side_place_ >= 0, slot + side_place_, side_);
      codes_ += KTile::kStride;
    }
    copy_commit();
    side_ += side_step_;
  }

  __device__ __forceinline__ bool has_piece(const PhaseQueue& phases) {
#pragma unroll 1
    while (left_ == 0) {
      if (phase_ < 0 || phases.piece(phase_, warp_, piece_).last) {
        if (phase_ + 1 >= phases.known) return false;
        ++phase_;
        piece_ = 0;
      } else {
        ++piece_;
      }
      const int count = phases.piece(phase_, warp_, piece_).count;
      if (count > 0) begin_piece(phases, count);
    }
    return true;
  }

  // Begins with the last `left` k-tiles of a piece. Some lanes also copy scales or offsets, 16
  // bytes each.
  __device__ __forceinline__ void begin_piece(const PhaseQueue& phases, int left) {
    const StreamPiece& piece = phases.piece(phase_, warp_, piece_);
    const int done = piece.count - left, offset_lane = lane_ - piece.scale_vectors;
    const bool scale = offset_lane < 0;
    left_ = left;
    if constexpr (Codes::kSeveral) {
      code_words_ = piece.code_words;
      codes_ = piece.codes + done * (code_words_ * 8) + lane_;
    } else {
      codes_ = piece.codes + done * (KTile::kStride) + lane_;
    }
    side_step_ = (scale ? piece.scale_vectors : piece.offset_vectors) * 16;
    side_ =
        (scale ? piece.scales + lane_ * 16 : piece.offsets + offset_lane * 16) + done * side_step_;
    side_place_ = offset_lane >= piece.offset_vectors ? -1
                  : scale                             ? KTile::kScales
                                                      : KTile::kOffsets - piece.scale_vectors * 16;
  }

  const int warp_, lane_;
  const uint32_t end_of_ring_;
  uint32_t oldest_;  // It is the place of this lane's codes in the oldest k-tile.
  int ahead_ = 0;    // This many k-tiles are in the ring.
  // The next fetches are `left_` k-tiles of a piece.
  int phase_ = -1, piece_ = 0, left_ = 0;
  const uint4* codes_ = nullptr;
  const std::byte* side_ = nullptr;
  // It is the distance from the lane's codes; < 0: this lane copies none.
  int side_place_ = 0;
  int side_step_ = 0;   // K-tiles are this many bytes apart.
  int code_words_ = 0;  // It is the piece's, in programs with several codes.
};

}  // namespace walsh::cuda
