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
  matmul,     // its inputs are made by every block for itself, or read from memory
  inputs,     // the inputs of a product, made by all blocks together
  attention,  // norm and rope of queries and keys, the append to the cache, and attention
  router,     // logits of the experts, in programs that have experts
  delta,      // one step of a gated delta net, in programs with other mixers (WithMixers)
};

// Tells a phase how to recognize the values of this launch among older ones
// (persistent/exchange.cuh).
struct ValueTag {
  uint8_t here = 0;   // 1: written by an earlier phase; 0: they were there before the launch
  uint8_t bit = 0;    // the tag bit that the values have
  uint8_t flips = 0;  // 1: the tag bit changes with every launch
};

// A phase reads this of a coded cache (CodedPages, CodedShape).
struct CodedPhase {
  struct Side {
    const unsigned char* tiles = nullptr;
    const uint16_t* leading = nullptr;
    int groups = 0, tile_bytes = 0, block = 0;
    float factor = 1;  // of the rotation: 1 / sqrt(block)
  };
  int bits = 0;  // per code, of keys and values; 0: the cache is not coded
  int ring = 0, window = 0;
  Side keys, values;
  // The rotations negate column 32 b + i where bit i of word b is set. They are arguments, since
  // factors in memory would arrive behind the weights that have been asked for.
  uint32_t signs[4] = {};
  const float* key_offsets = nullptr;
  ByteLevels key_levels;
  HalfLevels value_levels;
};

struct AttentionPhase {
  // These are fp16 [page][kv_head][kPageTokens][head_dim]; of a coded cache the rings.
  uint16_t* keys = nullptr;
  uint16_t* values = nullptr;
  const float* q = nullptr;  // exchanged or plain, as the tags of the phase say
  const float* k = nullptr;
  const float* v = nullptr;
  const float* q_norm = nullptr;  // [head_dim] or null
  const float* k_norm = nullptr;
  const float* cos = nullptr;  // [positions][head_dim / 2]; null: no rotation
  const float* sin = nullptr;
  const float* q_scale = nullptr;  // [positions] or null
  float* out = nullptr;
  int64_t ldo = 0;            // of several rows
  float* exchange = nullptr;  // `out`, in the form that other blocks read
  float* partials = nullptr;  // [head][split][head_dim], then float2 [head][split]
  int32_t* arrived = nullptr;
  float eps = 0;
  AttentionRule rule;  // without a cap
  int group = 0;       // query heads per head of the cache
  int tiles = 0;       // tiles of up to 8 heads that a group is divided into
  int heads = 0;
  int kv_heads = 0, head_dim = 0;
  int most_splits = 1;  // parts that the positions of a sequence are divided into, at most
  // With up to this many tiles of positions to a warp, positions are not divided among blocks. A
  // block then has `whole_heads` query heads, and a group has `whole_blocks` blocks.
  int whole_tiles = 1, whole_heads = kTileHeads, whole_blocks = 1;
  // Programs with other mixers use these: the number of rotated pairs per head, and whether every
  // query head is followed by gates, whose sigmoid multiplies the output.
  int turned = 0;
  bool gated = false;
  CodedPhase coded;
};

// Describes one row of a delta net: decays and strengths, the convolution, the delta rule, and the
// gates of the output. The division by the norm of each head is left to the reader of the results;
// for that the phase also writes the sums of the squares, [value heads][pieces per head, rounded up
// to kSquaresAtOnce].
struct DeltaPhase {
  ConvolveCall net;               // `in` is exchanged; places, out, decay and strength are unused
  const float* x = nullptr;       // input of decays and strengths; exchanged or plain, see its tag
  const float* x_gain = nullptr;  // null: x is used as it is
  float x_eps = 0;
  int width = 0;                         // values of x
  const float* decay_rows = nullptr;     // [value heads][width]
  const float* strength_rows = nullptr;  // [value heads][width]
  const float* gates = nullptr;          // exchanged, [value heads][value_dim]
  const float* gain = nullptr;           // [value_dim]
  float* exchange = nullptr;             // the results
  float* squares = nullptr;              // exchanged
  int pieces = 0;                        // per head, of kDeltaColumns columns each
};
inline constexpr int kSquaresAtOnce = 4;
constexpr int squares_of_head(int pieces) {
  return (pieces + kSquaresAtOnce - 1) / kSquaresAtOnce * kSquaresAtOnce;
}

// Multiplies uncoded rows by an input, which is multiplied by its gains and divided by its norm.
struct RouterPhase {
  const float* x = nullptr;        // exchanged or plain, as the tag of the phase says
  const float* gain = nullptr;     // null: the input has no norm either
  float eps = 0;                   // of the norm
  const float* weights = nullptr;  // [experts][width]
  const float* share = nullptr;    // [width], the row behind the experts' rows, or null
  float* exchange = nullptr;       // the results
  int experts = 0, rows = 0, width = 0;
};

// Describes the code of one product of a phase, in programs with several codes.
struct alignas(16) PhaseCode {
  LevelTable table{};
  float unit = 1;
  DecoderKind decoder = DecoderKind::scalar2;
  uint8_t flush = 128;        // see GemvKind
  uint8_t words = 0;          // 32-bit words of codes per lane and k-tile
  uint8_t scale_vectors = 0;  // see GemvArgs
  uint8_t scale_shift = 0;
  uint8_t offset_vectors = 0;
};

struct alignas(16) ProgramPhase {
  PhaseKind kind = PhaseKind::matmul;
  bool prepares = true;            // product: every block makes the inputs itself
  bool after_attention = false;    // its inputs come from attention, so the wait is long
  bool doubled = false;            // product: its inputs have the order of doubles_inputs
  uint8_t turn = 0;                // product: its number, modulo 4, among those with `prepares`
  uint16_t segment = 0;            // columns of a rotation, kLeastSegment to a k-tile; 0: none
  uint16_t k_tile_bytes = 0;       // size of a k-tile of inputs in shared memory
  int known = 0;                   // product: the phases before this one are in shared memory
  const uint8_t* signs = nullptr;  // bit e of byte i: column 8 i + e is negated; null: no signs
  // A product reads x, or up, or squares of heads, or logits of experts; attention reads q, k, v; a
  // delta net reads channels, gates, x.
  ValueTag in[kPhaseArrays];
  ValueTag out[kPhaseArrays];  // product: results; inputs: packets; attention: out; delta:
                               // results, squares
  uint8_t head_shift = 0;      // product: its input has heads of 1 << head_shift values, which
                               // are divided by their norm; 0: it has none
  uint4* packets = nullptr;    // of the inputs that all blocks share
  // Programs with several codes use these: the code of each product, and the tiles of this block,
  // which the block itself fills in from ProgramArgs::shares.
  PhaseCode code[kMaxMatmuls];
  int first_tile = 0, tiles = 0;
  union {
    GemvArgs gemv;  // `in` may be an array of exchanged values
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
  int pair = 1;         // blocks that make their inputs together: 1 or 2
  int own_bytes = 0;    // shared memory of one of the two places for inputs that blocks make
  int input_bytes = 0;  // shared memory for shared inputs, which attention uses as well
  int sum_bytes = 0;
  uint32_t* left = nullptr;          // blocks that are done (zero between launches), then the epoch
  const uint16_t* shares = nullptr;  // several codes: [phase][block + 1], first tile of each block
  // If the kernel has several rows, `rows` of them are computed. Further rows that it has room for
  // repeat the last one, and nothing of them is kept.
  int rows = 1;
  const int32_t* position = nullptr;
  const int32_t* sequence = nullptr;
  const int32_t* pages = nullptr;
  int64_t pages_per_sequence = 0;
  const int32_t* kept = nullptr;  // CodedShape, or null
  // Programs with experts use these: one entry per phase, and the number of the first phase that
  // chooses.
  const ExpertPhase* experts = nullptr;
  int first_choice = 0;
};

inline constexpr int kProgramPages = 32;  // pages per sequence whose places blocks keep at hand
inline constexpr int kMostRows = 4;       // of a launch

// Exchanged values of several rows begin this far from one row to the next.
constexpr int exchange_stride(int values) {
  return (values + kKTileColumns - 1) / kKTileColumns * kKTileColumns;
}

// Says where a row is in the KV cache.
struct ProgramRow {
  int position;
  int kept;  // of a coded cache
  const int32_t* pages;
  int32_t first_pages[kProgramPages];
};

inline constexpr int kProgramWarps = 16;
inline constexpr size_t kLogitsArray = 2;  // index in ProgramPhase::in
inline constexpr int kLeastSegment = 128;
inline constexpr int kNormedKTiles = 64;               // most k-tiles of an input with a norm
inline constexpr int kKnownPhases = 8;                 // phases in shared memory
inline constexpr int kFirstPhases = kKnownPhases - 1;  // loaded before the first phase runs
inline constexpr int kLongestPiece = 65535;            // most k-tiles of a warp in a phase
inline constexpr int kWorkBytes = kProgramWarps * (16 + kMaxMatmuls * 32);  // PhaseWork
// A k-tile of shared inputs consists of one packet per lane: the lane's int8 values, their scale,
// and twice the sum of the group. Behind the packets of all k-tiles comes one more per k-tile, with
// the sum of its squares. Several rows have packets of their own (persistent/input_rows.cuh).
inline constexpr int kKTilePackets = 32;
inline constexpr int kRowPackets = 18;  // of a k-tile of one of several rows
inline constexpr int kHeadPass = 512;   // values of heads that warps combine in one pass
inline constexpr int kPhaseMaxSplits = 128;

// Lays out a block's memory: rings of weights, own inputs (twice), shared inputs, sums, phases.
struct ProgramMemory {
  int stage_bytes, stages;

  constexpr int ring_bytes() const { return kProgramWarps * stages * stage_bytes; }
  bool operator==(const ProgramMemory&) const = default;
};

// The rings hold about 130 KB: as much as arrives while a phase waits for the one before it. They
// are less deep where inputs of several rows leave no room.
constexpr ProgramMemory program_memory(int code_vectors, int flush, int rows = 1,
                                       bool deep = true) {
  const int most = code_vectors == 2 ? 7 : code_vectors == 3 ? 5 : code_vectors == 4 ? 4 : 2;
  const int stages = !deep ? most * 3 / 5 : rows == 4 && code_vectors == 4 ? 3 : most;
  return {k_tile_bytes(code_vectors, flush), stages};
}

// Attention needs these bytes of the room for inputs: sums of the warps and their softmax state.
inline constexpr int kAttentionPhaseBytes = kProgramWarps * kHeadPass * 4 + kProgramWarps * 8 * 8;
// Attention over a coded cache needs more, since its sums have padding and are rotated.
inline constexpr int kCodedPhaseBytes =
    kProgramWarps * kHeadPass / 8 * 9 * 4 + kProgramWarps * 8 * 8 + kHeadPass * 4;
// A delta net needs these bytes of the room for inputs: partial sums, each warp's decay, strength
// and squares, and the channels.
inline constexpr int kDeltaPhaseBytes =
    (kProgramWarps * kDeltaColumns + 3 * kProgramWarps + 2 * kMostDeltaDim + kDeltaColumns) * 4;

#if defined(__CUDACC__) || defined(__CUDA_ARCH__)  // device code, and its emulation on the host
// Returns the number of this block counted from the end. The last blocks have the fewest tiles of
// products, so work that only some blocks do is given to them first.
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
struct NarrowCodes;   // scalar codes of 2, 3 and 4 bits with scales for at least 128 columns
struct WideCodes;     // all scalar codes
struct TrellisCodes;  // NarrowCodes and trellis codes
template <typename Decoder, int Flush>
struct OneCode;
template <typename Codes, bool Experts, bool Mixers>
PersistentKernel persistent_kernel();
// Returns the same for programs that attend to a coded cache of heads of Dim values.
template <typename Codes, bool Experts, int Dim>
PersistentKernel coded_persistent_kernel();
// Returns the same for `Rows` rows, 2 or 4, without experts, other mixers and coded caches; the
// codes are one scalar code with scales for at least 128 columns.
template <typename Codes, int Rows, bool Deep>
PersistentKernel rows_persistent_kernel();
constexpr ProgramMemory program_memory_of_several(bool wide) {
  return wide ? program_memory(8, 32) : program_memory(4, 128);
}

}  // namespace walsh::cuda
