// What the GEMV kernels are told, and which of them there are.
//
// A block multiplies a range of tiles (16 rows), a round of up to 7 of them at a time. Its warps
// divide the round's k-tiles of 256 columns, tile after tile, into even runs: a warp reads one
// stretch of memory through a ring of its own in shared memory, adds up in registers, and leaves
// its sums where it passes from tile to tile; at the end of the round the sums of a tile are added
// in order. Runs do not depend on m, and so a token's result does not.
#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/gemv/gemv.h"
#include "kernels/cuda/rows/form_view.h"

namespace walsh::cuda {

struct TileSet {  // one product
  const uint4* codes = nullptr;
  const std::byte* scales = nullptr;
  const std::byte* offsets = nullptr;
  const std::byte* row_factors = nullptr;  // fp16 [tile][g][2], or null: 1
  float row_unit = 1;                      // what rows are multiplied with beside them
  const float* bias = nullptr;
  float* y = nullptr;
  float* exchange = nullptr;  // of a step: y for other blocks
  int64_t ldy = 0;
  int rows = 0;
  int first_tile = 0;
  bool add = false;
};

struct GemvArgs {
  TileSet set[kMaxMatmuls];
  int tiles = 0;          // of all products
  int k_tiles = 0;        // k-tiles of 256 columns in a row
  int slice_k_tiles = 0;  // whose inputs fit into shared memory together
  int m = 0;
  int vectors = 0;  // m * planes
  int planes = 1;
  float unit = 1;
  LevelTable table{};
  const void* codebook = nullptr;  // Matrix::table

  int scale_vectors = 0;  // 16-byte vectors of scales that a k-tile has
  int scale_tile = 0;     // bytes from tile to tile
  int scale_step = 0;     // bytes from k-tile to k-tile, 0: one scale per row
  int scale_shift = 0;    // block of 32 columns of the k-tile >> shift: its scale
  int offset_vectors = 0, offset_tile = 0, offset_step = 0;

  int x_group = 128;
  int x_shift = 2;  // block of 32 columns of the k-tile >> shift: its input scale
  const int8_t* q = nullptr;
  const float* x_scales = nullptr;
  const int32_t* x_sums = nullptr;

  int tiles_per_block = 0, blocks_with_more = 0;  // the first ones have a tile more
  InputView in;                                   // of a step, which prepares inputs itself
  FormView form;
};

// Which kernel: `tiles8` tiles of 8 vectors, 0 for one vector.
struct GemvKind {
  DecoderKind decoder = DecoderKind::scalar2;
  int flush = 128;  // columns between two additions to the float sums: 32 or 128
  int tiles8 = 0;
  bool many_tiles = false;  // blocks have many: round_tiles()
};

// The architecture that code is for, which decides the depth of the rings; kernels and the host
// agree on it (DeviceInfo::code).
#ifdef __CUDA_ARCH__
inline constexpr int kGemvArchitecture = __CUDA_ARCH__ / 10;
#else
inline constexpr int kGemvArchitecture = 90;  // where host code only names device functions
#endif

// Tiles whose sums are in shared memory together, as many as leave room for 16 inputs of 8192. All
// warps meet behind them, so that blocks with many tiles take more at a time, where the device has
// 227 KB.
constexpr int round_tiles(bool many_tiles, int tiles8, int architecture) {
  return !many_tiles || architecture != 90 ? 7 : tiles8 <= 1 ? 48 : 24;
}

// Few registers are left for 16 warps; 8-bit codes take more of them.
constexpr int gemv_warps(int code_vectors) {
  return code_vectors == 8 ? 8 : 16;
}

// A k-tile in shared memory: codes, then scales and offsets.
constexpr int k_tile_bytes(int code_vectors, int flush) {
  return code_vectors * 512 + (flush == 32 ? 288 : 128);
}

// Memory of a block.
struct GemvMemory {
  int warps, stage_bytes, stages, sum_bytes;

  constexpr int ring_bytes() const { return warps * stages * stage_bytes; }
};

// Up to 8 vectors leave room for deeper rings than the most there can be. Still deeper ones are
// slower (docs/gpu.md). Where a table lies beside them, fewer fit a device of 99 KB that runs code
// for 8.0.
constexpr GemvMemory gemv_memory(const GemvKind& kind, int architecture) {
  const auto [decoder, flush, tiles8, many_tiles] = kind;
  const int vectors = code_vectors(decoder), warps = gemv_warps(vectors);
  const int stage = k_tile_bytes(vectors, flush);
  const bool large = architecture == 80 || architecture == 90;  // 163 and 227 KB, others have 99
  const bool three =
      (vectors == 3 && table_bytes(decoder) == 0) || (vectors == 8 && architecture == 90);
  const int deep = vectors == 2 ? 4 : three ? 3 : 2;
  const int shallow = vectors == 2 ? 3 : vectors == 8 ? 1 : 2;
  const int stages = !large ? 1 : tiles8 <= 1 ? deep : shallow;
  const int tokens = tiles8 == 0 ? 1 : tiles8 == 1 ? 8 : 16;
  const int pieces = round_tiles(many_tiles, tiles8, architecture) + warps - 1;
  return {warps, stage, stages, pieces * tokens * kTileRows * 4};
}

// Whether inputs are for trellis codes alone and every pair of columns stands twice
// (gemv/trellis_dot.cuh): of one vector, for which there is room.
constexpr bool doubles_inputs(DecoderKind decoder, int tiles8) {
  return is_trellis(decoder) && tiles8 == 0;
}

// Bytes of shared memory that one k-tile's inputs take.
constexpr int input_bytes(int vectors, int tiles8, int x_group, bool doubled = false) {
  const int scales = tiles8 == 0 ? 1 : 8 * tiles8;
  return (doubled ? 2 : 1) * vectors * kKTileColumns + scales * (kKTileColumns / x_group) * 8;
}

using GemvKernel = void (*)(GemvArgs);
template <typename Decoder>
GemvKernel gemv_kernel(const GemvKind& kind);  // one file per decoder

}  // namespace walsh::cuda
