// What the persistent kernel is told (persistent/program.h), phase by phase.
#pragma once

#include <cuda_fp16.h>

#include "kernels/cuda/attention/cache_view.h"
#include "kernels/cuda/delta/delta.h"
#include "kernels/cuda/gemv/gemv_kernel.h"
#include "kernels/cuda/persistent/phase_order.h"

namespace walsh::cuda {

struct ExpertPhase;

enum class PhaseKind : int {
  matmul,     // of inputs that every block makes for itself, or reads from memory
  inputs,     // of a product, shared by all blocks
  attention,  // norm and rope of queries and keys, the append to the cache, and attention
  router,     // logits of experts, in programs that have any
  delta,      // a step of a delta net, in programs of other mixers (persistent/codes.cuh)
};

// How a phase knows values of this launch from older ones (persistent/exchange.cuh).
struct ValueTag {
  uint8_t here = 0;   // written by an earlier phase; else they were there before the launch
  uint8_t bit = 0;    // of the values
  uint8_t flips = 0;  // with every launch
};

struct AttentionPhase {
  uint16_t* keys = nullptr;  // fp16 [page][kv_head][kPageTokens][head_dim]
  uint16_t* values = nullptr;
  const float* q = nullptr;  // exchanged or plain, as the phase's tags say
  const float* k = nullptr;
  const float* v = nullptr;
  const float* q_norm = nullptr;  // [head_dim] or null
  const float* k_norm = nullptr;
  const float* cos = nullptr;  // [positions][head_dim / 2], or null: nothing is rotated
  const float* sin = nullptr;
  const float* q_scale = nullptr;  // [positions] or null
  float* out = nullptr;
  float* exchange = nullptr;  // `out` for other blocks
  float* partials = nullptr;  // [head][split][head_dim], then float2 [head][split]
  int32_t* arrived = nullptr;
  float eps = 0;
  float scale = 1;  // of logits in base 2
  int group = 0;    // query heads per cache head
  int tiles = 0;    // tiles of up to 8 heads in a group
  int heads = 0;
  int kv_heads = 0, head_dim = 0;
  int window = 0;
  int most_splits = 1;  // of a sequence, over blocks
  // Of programs of other mixers: pairs of a head that are rotated, and whether every head of
  // queries has its gates behind it, whose sigmoid multiplies what comes out.
  int turned = 0;
  bool gated = false;
};

// A row of a delta net: decays and strengths, the convolution, the rule, and the gates of what it
// gives. What the norms of its heads divide by is left to who reads it: the sums of the squares are
// handed over beside, [value heads][pieces of a head, rounded up to kSquaresAtOnce].
struct DeltaPhase {
  ConvolveCall net;               // `in` is exchanged; places, out, decay and strength are not used
  const float* x = nullptr;       // of decays and strengths: exchanged or plain, as its tag says
  const float* x_gain = nullptr;  // or null: x as it is
  float x_eps = 0;
  int width = 0;                         // of x
  const float* decay_rows = nullptr;     // [value heads][width]
  const float* strength_rows = nullptr;  // [value heads][width]
  const float* gates = nullptr;          // exchanged, [value heads][value_dim]
  const float* gain = nullptr;           // [value_dim]
  float* exchange = nullptr;             // results
  float* squares = nullptr;              // exchanged
  int pieces = 0;                        // of kDeltaColumns columns, of a head
};
inline constexpr int kSquaresAtOnce = 4;
constexpr int squares_of_head(int pieces) {
  return (pieces + kSquaresAtOnce - 1) / kSquaresAtOnce * kSquaresAtOnce;
}

// Plain rows times an input, which is multiplied with gains but not divided by its norm.
struct RouterPhase {
  const float* x = nullptr;        // exchanged or plain, as the phase's tag says
  const float* gain = nullptr;     // or null
  const float* weights = nullptr;  // [experts][width]
  const float* share = nullptr;    // [width], a row behind them, or null
  float* exchange = nullptr;       // the results
  int experts = 0, rows = 0, width = 0;
};

// How a product of a phase is coded, in programs of several codes.
struct alignas(16) PhaseCode {
  LevelTable table{};
  float unit = 1;
  DecoderKind decoder = DecoderKind::scalar2;
  uint8_t flush = 128;        // as GemvKind
  uint8_t words = 0;          // of codes of a lane and k-tile
  uint8_t scale_vectors = 0;  // as GemvArgs
  uint8_t scale_shift = 0;
  uint8_t offset_vectors = 0;
};

struct alignas(16) ProgramPhase {
  PhaseKind kind = PhaseKind::matmul;
  bool prepares = true;            // product: makes its inputs itself
  bool after_attention = false;    // its inputs are long in coming
  bool doubled = false;            // product: its inputs stand as doubles_inputs says
  uint8_t turn = 0;                // product: the how manieth that makes its inputs, modulo 4
  uint16_t segment = 0;            // all of a rotation, from kLeastSegment up to a k-tile; or 0
  uint16_t k_tile_bytes = 0;       // of inputs in shared memory
  int known = 0;                   // product: phases up to this one are in shared memory
  const uint8_t* signs = nullptr;  // bit e of byte i: column 8 i + e is negated; null: none
  // Product: x, up or squares of heads, logits of experts; attention: q, k, v; delta: channels,
  // gates, x.
  ValueTag in[kPhaseArrays];
  ValueTag out[kPhaseArrays];  // product: results; inputs: packets; attention: out; delta:
                               // results, squares
  uint8_t head_shift = 0;      // product: its input has heads of 1 << head_shift values, which
                               // are divided by their norm; 0: it has none
  uint4* packets = nullptr;    // of shared inputs
  // Of programs of several codes: those of the products, and the tiles of a block, which it fills
  // in itself (ProgramArgs::shares).
  PhaseCode code[kMaxMatmuls];
  int first_tile = 0, tiles = 0;
  union {
    GemvArgs gemv;  // its `in` may be exchanged values
    AttentionPhase attention;
    RouterPhase router;
    DeltaPhase delta;
  };

  ProgramPhase() : gemv() {}
  explicit ProgramPhase(const AttentionPhase& of) : kind(PhaseKind::attention), attention(of) {}
  explicit ProgramPhase(const RouterPhase& of) : kind(PhaseKind::router), router(of) {}
  explicit ProgramPhase(const DeltaPhase& of) : kind(PhaseKind::delta), delta(of) {}
};
// Programs without other mixers keep their places of everything.
static_assert(sizeof(AttentionPhase) <= sizeof(GemvArgs) && sizeof(DeltaPhase) <= sizeof(GemvArgs));

struct ProgramArgs {
  const ProgramPhase* phases = nullptr;
  int count = 0;
  int pair = 1;         // blocks that make their inputs together, 1 or 2
  int own_bytes = 0;    // of shared memory: of one of two places of inputs that blocks make
  int input_bytes = 0;  // of shared inputs, also room of the attention
  int sum_bytes = 0;
  uint32_t* left = nullptr;  // blocks that have left, zero before and after a launch; then epoch
  const uint16_t* shares = nullptr;  // of several codes: [phase][block + 1] first tiles
  // Of the row.
  const int32_t* position = nullptr;
  const int32_t* sequence = nullptr;
  const int32_t* pages = nullptr;
  int64_t pages_per_sequence = 0;
  // Of programs with experts: [phase], and the first phase that chooses.
  const ExpertPhase* experts = nullptr;
  int first_choice = 0;
};

inline constexpr int kProgramPages = 32;  // of a sequence, whose places blocks keep at hand

// A row of the cache.
struct ProgramRow {
  int position;
  const int32_t* pages;
  int32_t first_pages[kProgramPages];
};

inline constexpr int kProgramWarps = 16;
inline constexpr size_t kLogitsArray = 2;  // of ProgramPhase::in
inline constexpr int kLeastSegment = 128;
inline constexpr int kNormedKTiles = 64;               // at most, of an input with a norm
inline constexpr int kKnownPhases = 8;                 // in shared memory
inline constexpr int kFirstPhases = kKnownPhases - 1;  // before the first one
inline constexpr int kLongestPiece = 65535;
inline constexpr int kWorkBytes = kProgramWarps * (16 + kMaxMatmuls * 32);  // PhaseWork
// Packets of a k-tile of shared inputs: of every lane its int8 values, scale, and twice the sum of
// the group's. Behind those of all k-tiles comes one of each with the sum of its squares.
inline constexpr int kKTilePackets = 32;
inline constexpr int kHeadPass = 512;  // values of heads that warps put together at a time
inline constexpr int kPhaseMaxSplits = 128;

// Memory of a block: rings of weights, own inputs twice, shared ones, sums, phases.
struct ProgramMemory {
  int stage_bytes, stages;

  constexpr int ring_bytes() const { return kProgramWarps * stages * stage_bytes; }
  bool operator==(const ProgramMemory&) const = default;
};

// Rings of some 130 KB: what comes in while a phase waits for the one before.
constexpr ProgramMemory program_memory(int code_vectors, int flush) {
  const int stages = code_vectors == 2 ? 7 : code_vectors == 3 ? 5 : code_vectors == 4 ? 4 : 2;
  return {k_tile_bytes(code_vectors, flush), stages};
}

// What attention needs of the inputs' room: sums of the warps, their state.
inline constexpr int kAttentionPhaseBytes = kProgramWarps * kHeadPass * 4 + kProgramWarps * 8 * 8;
// What a delta net needs of it: parts of sums, of decay, strength and squares of every warp,
// channels.
inline constexpr int kDeltaPhaseBytes =
    (kProgramWarps * kDeltaColumns + 3 * kProgramWarps + 2 * kMostDeltaDim + kDeltaColumns) * 4;

#if defined(__CUDACC__) || defined(__CUDA_ARCH__)  // device code, on the host, too
// The number of this block from the end: the last ones have the fewest tiles of products, so what
// only some blocks do is theirs first.
__device__ __forceinline__ int last_first() {
  return static_cast<int>(gridDim.x - 1 - blockIdx.x);
}
#endif

using PersistentKernel = void (*)(ProgramArgs);
// One file per decoder, and one for several: of 2, 3 and 4 bits with scales that hold for 128
// columns at least, of these and trellis codes, or of all scalar ones (`wide`).
template <typename Decoder>
PersistentKernel persistent_kernel(int flush);
PersistentKernel persistent_kernel_of_several(bool wide, bool trellis);
PersistentKernel persistent_kernel_of_trellises();
// The same for programs with experts, of scalar codes.
template <typename Decoder>
PersistentKernel persistent_expert_kernel(int flush);
PersistentKernel persistent_expert_kernel_of_several(bool wide);
// The same for programs of other mixers, without experts and with them: scalar codes of 2, 3 and 4
// bits with scales that hold for 128 columns at least, or several of these.
template <typename Decoder>
PersistentKernel persistent_mixer_kernel();
template <typename Decoder>
PersistentKernel persistent_mixer_expert_kernel();
PersistentKernel persistent_mixer_kernel_of_several();
PersistentKernel persistent_mixer_expert_kernel_of_several();
constexpr ProgramMemory program_memory_of_several(bool wide) {
  return wide ? program_memory(8, 32) : program_memory(4, 128);
}

}  // namespace walsh::cuda
