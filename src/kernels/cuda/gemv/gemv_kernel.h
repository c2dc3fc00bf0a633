// Declares arguments and selection of the GEMV kernels.
//
// A block multiplies a range of tiles (16 rows), in rounds of up to 7. Its warps divide the round's
// k-tiles of 256 columns, tile after tile, into even runs. A warp reads one contiguous stretch of
// memory through its own ring in shared memory, sums in registers, and stores its sums where it
// passes from tile to tile. At the end of the round the sums of a tile are added in order. Runs do
// not depend on m, so neither does a token's result.
#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/gemv/gemv.h"
#include "kernels/cuda/rows/form_view.h"

namespace walsh::cuda {

struct TileSet {  // It describes one product.
  const uint4* codes = nullptr;
  const std::byte* scales = nullptr;
  const std::byte* offsets = nullptr;
  const std::byte* row_factors = nullptr;  // It is fp16 [tile][g][2]; null: all are 1.
  float row_unit = 1;                      // It multiplies all rows, besides row_factors.
  const float* bias = nullptr;
  float* y = nullptr;
  float* exchange = nullptr;  // In the persistent kernel it is y for other blocks.
  int64_t ldy = 0;
  int rows = 0;
  int first_tile = 0;
  bool add = false;
};

struct GemvArgs {
  TileSet set[kMaxMatmuls];
  int tiles = 0;    // It counts those of all products.
  int k_tiles = 0;  // A row has this many k-tiles of 256 columns.
  // The inputs of this many k-tiles fit into shared memory together.
  int slice_k_tiles = 0;
  // With 2, the inputs of the next slice or expert are brought meanwhile.
  int input_buffers = 1;
  int m = 0;
  int vectors = 0;  // It is m * planes.
  int planes = 1;
  float unit = 1;
  LevelTable table{};
  const void* codebook = nullptr;  // It is Matrix::table.

  int scale_vectors = 0;  // A k-tile has this many 16-byte vectors of scales.
  int scale_tile = 0;     // Tiles are this many bytes apart.
  int scale_step = 0;     // K-tiles are this many bytes apart; 0: a row has one scale.
  // A block of 32 columns shifted right by this is the index of its scale in the k-tile.
  int scale_shift = 0;
  int offset_vectors = 0, offset_tile = 0, offset_step = 0;

  int x_group = 128;
  // A block of 32 columns shifted right by this is the index of its input scale in the k-tile.
  int x_shift = 2;
  const int8_t* q = nullptr;
  const float* x_scales = nullptr;
  const int32_t* x_sums = nullptr;

  // The first `blocks_with_more` blocks have one more tile.
  int tiles_per_block = 0, blocks_with_more = 0;
  InputView in;  // The persistent kernel prepares inputs itself, from this.
  FormView form;
};

// Selects a kernel. `tiles8` is the number of tiles of 8 vectors, 0 for one vector.
struct GemvKind {
  DecoderKind decoder = DecoderKind::scalar2;
  // This many columns are summed in integers before each addition to the float sums: 32 or 128.
  int flush = 128;
  int tiles8 = 0;
  // If true, blocks go through tiles of several experts (experts/expert_gemv.cuh).
  bool experts = false;
};

// Returns how many vectors a launch takes at most: 16 tokens in each plane of inputs. Formats with
// two planes and scales for 128 columns need both planes only there.
constexpr int most_vectors(DecoderKind decoder, int flush) {
  const bool planes =
      row_of(decoder).planes == 2 && (flush == 128 || !row_of(decoder).large_groups);
  return planes ? 32 : 16;
}
// Returns GemvKind::tiles8 for a number of vectors. Only trellis matrices whose rows end with
// column blocks of 64 and 32 are summed by 32, and have one kernel.
constexpr int tiles_of_8(DecoderKind decoder, int flush, int vectors) {
  if (is_trellis(decoder) && flush == 32) return 2;
  return vectors == 1 ? 0 : vectors <= 8 ? 1 : vectors <= 16 ? 2 : 4;
}

// The architecture of the compiled code determines the depth of the rings; kernels and the host
// must agree on it (DeviceInfo::code).
#ifdef __CUDA_ARCH__
inline constexpr int kGemvArchitecture = __CUDA_ARCH__ / 10;
#else
// Host code only takes addresses of device functions, so any value will do.
inline constexpr int kGemvArchitecture = 90;
#endif

// Returns how many tiles a round has, whose sums are in shared memory together: as many as leave
// room for 16 inputs of 8192. All warps meet after each round, so blocks of experts, which have
// many tiles, use larger rounds where the device has 227 KB.
constexpr int round_tiles(bool experts, int tiles8, int architecture) {
  return !experts || architecture != 90 ? 7 : tiles8 <= 1 ? 48 : 24;
}

// Returns how many warps a block has. 8-bit codes need more registers, so they have fewer warps.
constexpr int gemv_warps(int code_vectors) {
  return code_vectors == 8 ? 8 : 16;
}

// Returns the bytes of a k-tile in shared memory: codes, then scales and offsets.
constexpr int k_tile_bytes(int code_vectors, int flush) {
  return code_vectors * 512 + (flush == 32 ? 288 : 128);
}

// Lays out the shared memory of a block.
struct GemvMemory {
  int warps, stage_bytes, stages, sum_bytes;

  constexpr int ring_bytes() const { return warps * stages * stage_bytes; }
};

// Returns the layout. Up to 8 vectors leave room for deeper rings. Still deeper ones are slower
// (docs/gpu_notebook.md). With a table beside them, fewer stages fit a device with 99 KB that runs
// code for 8.0.
constexpr GemvMemory gemv_memory(const GemvKind& kind, int architecture) {
  const auto [decoder, flush, tiles8, experts] = kind;
  const int vectors = code_vectors(decoder), warps = gemv_warps(vectors);
  const int stage = k_tile_bytes(vectors, flush);
  // These architectures have 163 and 227 KB of shared memory; others have 99.
  const bool large = architecture == 80 || architecture == 90;
  const bool three =
      (vectors == 3 && table_bytes(decoder) == 0) || (vectors == 8 && architecture == 90);
  const int deep = vectors == 2 ? 4 : three ? 3 : 2;
  const int shallow = vectors == 2 ? 3 : vectors == 8 ? 1 : 2;
  const int stages = !large ? 1 : tiles8 <= 1 ? deep : shallow;
  const int tokens = tiles8 == 0 ? 1 : tiles8 == 1 ? 8 : 16;
  const int pieces = round_tiles(experts, tiles8, architecture) + warps - 1;
  return {warps, stage, stages, pieces * tokens * kTileRows * 4};
}

// Returns whether inputs are stored with every pair of columns doubled (gemv/trellis_dot.cuh). This
// is so only for trellis codes and one vector, for which there is room.
constexpr bool doubles_inputs(DecoderKind decoder, int tiles8) {
  return is_trellis(decoder) && tiles8 == 0;
}

// Returns the bytes of shared memory for one k-tile's inputs.
constexpr int input_bytes(int vectors, int tiles8, int x_group, bool doubled = false) {
  const int scales = tiles8 == 0 ? 1 : 8 * tiles8;
  return (doubled ? 2 : 1) * vectors * kKTileColumns + scales * (kKTileColumns / x_group) * 8;
}

using GemvKernel = void (*)(GemvArgs);
// Returns the kernel of a kind (gemv_kernel.cuh).
template <typename Decoder>
GemvKernel gemv_kernel(const GemvKind& kind);

}  // namespace walsh::cuda
