// Declares the arguments of the persistent kernel (persistent/program.h), phase by phase.
#pragma once

#include <cuda_fp16.h>

#include "kernels/cuda/attention/args.h"
#include "kernels/cuda/attention/coded_pages.h"
#include "kernels/cuda/delta/delta.h"
#include "kernels/cuda/gemv/gemv_kernel.h"
#include "kernels/cuda/persistent/block_work.h"

namespace walsh::cuda {

struct ExpertPhase;

enum class PhaseKind : int {
  // Every block makes its inputs for itself, or reads them from memory.
  matmul,
  inputs,  // All blocks make the inputs of a product together.
  // Applies norm and rope to queries and keys, appends to the cache, and attends.
  attention,
  router,  // It computes logits of the experts, in programs that have experts.
  // Computes one step of a gated delta net, in programs with other mixers (WithMixers).
  delta,
};

// Tells a phase how to recognize the values of this launch among older ones
// (persistent/exchange.cuh).
struct ValueTag {
  // With 1 an earlier phase has written the values; with 0 they were there before the launch.
  uint8_t here = 0;
  uint8_t bit = 0;    // The values have this tag bit.
  uint8_t flips = 0;  // With 1 the tag bit changes with every launch.
};

// Holds what a phase reads of a coded cache (CodedPages, CodedShape).
struct CodedPhase {
  struct Side {
    const unsigned char* tiles = nullptr;
    const uint16_t* leading = nullptr;
    int groups = 0, tile_bytes = 0, block = 0;
    float factor = 1;  // It is the rotation's: 1 / sqrt(block).
  };
  // It is the number of bits per code of keys and values; 0: the cache is not coded.
  int bits = 0;
  int ring = 0, window = 0;
  Side keys, values;
  // The rotations negate column 32 b + i if bit i of word b is set. These are arguments, because
  // factors in memory would arrive behind the weights that have been asked for.
  uint32_t signs[4] = {};
  const float* key_offsets = nullptr;
  ByteLevels key_levels;
  HalfLevels value_levels;
};

struct AttentionPhase {
  // These are fp16 [page][kv_head][kPageTokens][head_dim]; for a coded cache they are the rings.
  uint16_t* keys = nullptr;
  uint16_t* values = nullptr;
  const float* q = nullptr;  // They are exchanged or plain, as the tags of the phase say.
  const float* k = nullptr;
  const float* v = nullptr;
  const float* q_norm = nullptr;  // They are [head_dim] or null.
  const float* k_norm = nullptr;
  const float* cos = nullptr;  // They are [positions][head_dim / 2]; null: nothing is turned.
  const float* sin = nullptr;
  const float* q_scale = nullptr;  // It is [positions] or null.
  float* out = nullptr;
  int64_t ldo = 0;            // It is for several rows.
  float* exchange = nullptr;  // It is `out`, in the form that other blocks read.
  // It is [head][split][head_dim], then float2 [head][split].
  float* partials = nullptr;
  int32_t* arrived = nullptr;
  float eps = 0;
  AttentionRule rule;  // It has no cap.
  int group = 0;       // A head of the cache has this many query heads.
  // A group is divided into this many tiles of up to 8 heads.
  int tiles = 0;
  int heads = 0;
  int kv_heads = 0, head_dim = 0;
  int most_splits = 1;  // The positions of a sequence are divided into at most this many parts.
  // With up to this many tiles of positions to a warp, positions are not divided among blocks. A
  // block then has `whole_heads` query heads, and a group has `whole_blocks` blocks.
  int whole_tiles = 1, whole_heads = kTileHeads, whole_blocks = 1;
  // Programs with other mixers use these. They say how many pairs of a head rope turns, and whether
  // every query head is followed by gates, whose sigmoid multiplies the output.
  int turned = 0;
  bool gated = false;
  CodedPhase coded;
};

// Describes one row of a delta net: decays and strengths, the convolution, the delta rule, and the
// gates of the output. The reader of the results divides by the norm of each head. For that the
// phase also writes the sums of the squares, [value heads][pieces per head, rounded up to
// kSquaresAtOnce].
struct DeltaPhase {
  // `in` is exchanged; places, out, decay and strength are not used.
  ConvolveCall net;
  // It is the input of decays and strengths, exchanged or plain as its tag says.
  const float* x = nullptr;
  const float* x_gain = nullptr;  // If it is null, x is used as it is.
  float x_eps = 0;
  int width = 0;                         // x has this many values.
  const float* decay_rows = nullptr;     // Its shape is [value heads][width].
  const float* strength_rows = nullptr;  // Its shape is [value heads][width].
  const float* gates = nullptr;          // They are exchanged, [value heads][value_dim].
  const float* gain = nullptr;           // Its shape is [value_dim].
  float* exchange = nullptr;             // The results go here.
  float* squares = nullptr;              // The sums of squares go here, exchanged.
  int pieces = 0;                        // A head has this many, of kDeltaColumns columns each.
};
inline constexpr int kSquaresAtOnce = 4;
constexpr int squares_of_head(int pieces) {
  return (pieces + kSquaresAtOnce - 1) / kSquaresAtOnce * kSquaresAtOnce;
}

// Multiplies uncoded rows by an input, which is multiplied by its gains and divided by its norm.
struct RouterPhase {
  const float* x = nullptr;        // It is exchanged or plain, as the tag of the phase says.
  const float* gain = nullptr;     // If it is null, the input has no norm either.
  float eps = 0;                   // The norm adds it to the mean square.
  const float* weights = nullptr;  // Its shape is [experts][width].
  // It has the shape [width] and is the row behind the experts' rows; or null.
  const float* share = nullptr;
  float* exchange = nullptr;  // The results go here.
  int experts = 0, rows = 0, width = 0;
};

// Describes the code of one product of a phase, in programs with several codes.
struct alignas(16) PhaseCode {
  LevelTable table{};
  float unit = 1;
  DecoderKind decoder = DecoderKind::scalar2;
  uint8_t flush = 128;        // GemvKind explains it.
  uint8_t words = 0;          // A lane has this many 32-bit words of codes per k-tile.
  uint8_t scale_vectors = 0;  // GemvArgs explains it.
  uint8_t scale_shift = 0;
  uint8_t offset_vectors = 0;
};

struct alignas(16) ProgramPhase {
  PhaseKind kind = PhaseKind::matmul;
  // In a product, every block makes the inputs itself if this is true.
  bool prepares = true;
  bool after_attention = false;  // If true, its inputs come from attention, so the wait is long.
  bool doubled = false;          // In a product, its inputs have the order of doubles_inputs.
  // It is a product's number, modulo 4, among those with `prepares`.
  uint8_t turn = 0;
  // It is the columns of a rotation, from kLeastSegment to a k-tile; 0: there is none.
  uint16_t segment = 0;
  uint16_t k_tile_bytes = 0;  // A k-tile of inputs takes this much shared memory.
  // In a product, phases with numbers below this are in shared memory.
  int known = 0;
  // If bit e of byte i is set, column 8 i + e is negated; null: there are no signs.
  const uint8_t* signs = nullptr;
  // A product reads x, or up, or squares of heads, or logits of experts; attention reads q, k, v; a
  // delta net reads channels, gates, x.
  ValueTag in[kPhaseArrays];
  // A product has its results here, inputs their packets, attention its out, and a delta net its
  // results and squares.
  ValueTag out[kPhaseArrays];
  // A product's input has heads of 1 << head_shift values, which are
  // divided by their norm; 0: it has none.
  uint8_t head_shift = 0;
  uint4* packets = nullptr;  // They are those of the inputs that all blocks share.
  // Programs with several codes use these: the code of each product, and the tiles of this block,
  // which the block itself computes from ProgramArgs::shares.
  PhaseCode code[kMaxMatmuls];
  int first_tile = 0, tiles = 0;
  union {
    GemvArgs gemv;  // `in` may be an array of exchanged values.
    AttentionPhase attention;
    RouterPhase router;
    DeltaPhase delta;
  };

  ProgramPhase() : gemv() {}
  explicit ProgramPhase(const AttentionPhase& of) : kind(PhaseKind::attention), attention(of) {}
  explicit ProgramPhase(const RouterPhase& of) : kind(PhaseKind::router), router(of) {}
  explicit ProgramPhase(const DeltaPhase& of) : kind(PhaseKind::delta), delta(of) {}
};
// GemvArgs stays the largest member, so that other mixers do not change the layout of ProgramPhase.
static_assert(sizeof(AttentionPhase) <= sizeof(GemvArgs) && sizeof(DeltaPhase) <= sizeof(GemvArgs));

struct ProgramArgs {
  const ProgramPhase* phases = nullptr;
  int count = 0;
  int pair = 1;  // This many blocks make their inputs together: 1 or 2.
  // Each of the two places for inputs that blocks make takes this much shared memory.
  int own_bytes = 0;
  // Shared inputs take this much shared memory, which attention uses as well.
  int input_bytes = 0;
  int sum_bytes = 0;
  // Counts blocks that are done (zero between launches); the epoch follows.
  uint32_t* left = nullptr;
  // For several codes, it is [phase][block + 1], the first tile of each block.
  const uint16_t* shares = nullptr;
  // If the kernel has several rows, `rows` of them are computed. Further rows that it has room for
  // repeat the last one, and nothing of them is kept.
  int rows = 1;
  const int32_t* position = nullptr;
  const int32_t* sequence = nullptr;
  const int32_t* pages = nullptr;
  int64_t pages_per_sequence = 0;
  const int32_t* kept = nullptr;  // It is CodedShape::kept, or null.
  // Programs with experts use these: one entry per phase, and the number of the first phase that
  // chooses.
  const ExpertPhase* experts = nullptr;
  int first_choice = 0;
};

// Blocks keep the places of this many pages per sequence at hand.
inline constexpr int kProgramPages = 32;
inline constexpr int kMostRows = 4;  // A launch computes at most this many rows.

// Returns how far apart exchanged values of several rows begin.
constexpr int exchange_stride(int values) {
  return (values + kKTileColumns - 1) / kKTileColumns * kKTileColumns;
}

// Says where a row is in the KV cache.
struct ProgramRow {
  int position;
  int kept;  // It is for a coded cache.
  const int32_t* pages;
  int32_t first_pages[kProgramPages];
};

inline constexpr int kProgramWarps = 16;
inline constexpr size_t kLogitsArray = 2;  // It is an index in ProgramPhase::in.
inline constexpr int kLeastSegment = 128;
// An input with a norm has at most this many k-tiles.
inline constexpr int kNormedKTiles = 64;
inline constexpr int kKnownPhases = 8;  // This many phases are in shared memory.
// This many are loaded before the first phase runs.
inline constexpr int kFirstPhases = kKnownPhases - 1;
// A warp has at most this many k-tiles in a phase.
inline constexpr int kLongestPiece = 65535;
// The PhaseWork of a phase takes this much.
inline constexpr int kWorkBytes = kProgramWarps * (16 + kMaxMatmuls * 32);
// A k-tile of shared inputs consists of one packet per lane: the lane's int8 values, their scale,
// and twice the sum of the group. Behind the packets of all k-tiles comes one more per k-tile, with
// the sum of its squares. Several rows have packets of their own (persistent/input_rows.cuh).
inline constexpr int kKTilePackets = 32;
// A k-tile of one of several rows has this many packets.
inline constexpr int kRowPackets = 18;
// Warps combine this many values of heads in one pass.
inline constexpr int kHeadPass = 512;
inline constexpr int kPhaseMaxSplits = 128;

// Lays out a block's shared memory: rings of weights, own inputs (twice), shared inputs, sums,
// phases.
struct ProgramMemory {
  int stage_bytes, stages;

  constexpr int ring_bytes() const { return kProgramWarps * stages * stage_bytes; }
  bool operator==(const ProgramMemory&) const = default;
};

// Returns the layout. The rings hold about 130 KB, which is as much as arrives while a phase waits
// for the one before it. They are less deep where inputs of several rows leave no room.
constexpr ProgramMemory program_memory(int code_vectors, int flush, int rows = 1,
                                       bool deep = true) {
  const int most = code_vectors == 2 ? 7 : code_vectors == 3 ? 5 : code_vectors == 4 ? 4 : 2;
  const int stages = !deep ? most * 3 / 5 : rows == 4 && code_vectors == 4 ? 3 : most;
  return {k_tile_bytes(code_vectors, flush), stages};
}

// Attention needs this much of the room for inputs: sums of the warps, and their softmax state.
inline constexpr int kAttentionPhaseBytes = kProgramWarps * kHeadPass * 4 + kProgramWarps * 8 * 8;
// Attention over a coded cache needs more, because its sums have padding and are rotated.
inline constexpr int kCodedPhaseBytes =
    kProgramWarps * kHeadPass / 8 * 9 * 4 + kProgramWarps * 8 * 8 + kHeadPass * 4;
// A delta net needs this much of the room for inputs: partial sums, each warp's decay, strength and
// squares, and the channels.
inline constexpr int kDeltaPhaseBytes =
    (kProgramWarps * kDeltaColumns + 3 * kProgramWarps + 2 * kMostDeltaDim + kDeltaColumns) * 4;

// This is for device code, and for its emulation on the host.
#if defined(__CUDACC__) || defined(__CUDA_ARCH__)
// Returns the number of this block, counted from the end. The last blocks have the fewest tiles of
// products, so they get work that only some blocks do.
__device__ __forceinline__ int last_first() {
  return static_cast<int>(gridDim.x - 1 - blockIdx.x);
}
#endif

using PersistentKernel = void (*)(ProgramArgs);
// A kernel is compiled for the codes of all products, one or several, for programs with or without
// experts, and with or without other mixers. The codes are OneCode, or one of these
// (persistent/stream.cuh). cmake/cuda_kernels.cmake says which kernels there are: trellis codes
// have none with experts or other mixers, and those with other mixers have scales for at least 128
// columns.
struct NarrowCodes;   // They are scalar codes of 2 to 4 bits with scales for >= 128 columns.
struct WideCodes;     // They are all scalar codes.
struct TrellisCodes;  // They are NarrowCodes and trellis codes.
template <typename Decoder, int Flush>
struct OneCode;
template <typename Codes, bool Experts, bool Mixers>
PersistentKernel persistent_kernel();
// Returns the kernel for programs that attend to a coded cache of heads of Dim values.
template <typename Codes, bool Experts, int Dim>
PersistentKernel coded_persistent_kernel();
// Returns the kernel for `Rows` rows, 2 or 4, without experts, other mixers and coded caches. The
// codes are one scalar code with scales for at least 128 columns.
template <typename Codes, int Rows, bool Deep>
PersistentKernel rows_persistent_kernel();
constexpr ProgramMemory program_memory_of_several(bool wide) {
  return wide ? program_memory(8, 32) : program_memory(4, 128);
}

}  // namespace walsh::cuda
