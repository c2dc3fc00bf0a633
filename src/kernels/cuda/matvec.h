// What the product kernels of decoding are told, and which of them there are.
//
// A block multiplies a range of tiles (16 rows). Its warps share the columns: warp w takes units
// w, w + 8, .. of 256 columns of every tile, reads their codes through a ring of its own in shared
// memory, and adds up in registers; at the end of a tile the warps' sums are added in order. The
// order is the same for every m, and so is a token's result.
#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/form_view.h"
#include "kernels/cuda/products.h"

namespace walsh::cuda {

// Levels by code as int8, four per word; tables of 4 and 8 entries use the first words.
struct LevelTable {
  uint32_t words[4];
};

struct TileSet {  // one product
  const uint4* codes = nullptr;
  const std::byte* scales = nullptr;
  const std::byte* offsets = nullptr;
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t ldy = 0;
  int rows = 0;
  int first_tile = 0;
  bool add = false;
};

struct MatvecArgs {
  TileSet set[kMaxProducts];
  int tiles = 0;        // of all products
  int units = 0;        // units of 256 columns in a row
  int slice_units = 0;  // whose inputs fit into shared memory together, a multiple of kBlockWarps
  int m = 0;
  int vectors = 0;  // m * planes
  int planes = 1;
  float unit = 1;
  LevelTable table{};

  int scale_vectors = 0;  // 16-byte vectors of scales that a unit has
  int scale_tile = 0;     // bytes from tile to tile
  int scale_step = 0;     // bytes from unit to unit, 0: one scale per row
  int scale_shift = 0;    // block of 32 columns of the unit >> shift: its scale
  int offset_vectors = 0, offset_tile = 0, offset_step = 0;

  int x_group = 128;
  int x_shift = 2;  // block of 32 columns of the unit >> shift: its input scale
  const int8_t* q = nullptr;
  const float* x_scales = nullptr;
  const int32_t* x_sums = nullptr;

  InputView in;  // of kernels that prepare the input themselves
  FormView form;
};

// Which kernel: `tiles8` tiles of 8 vectors, 0 for one vector.
struct MatvecKind {
  int bits = 0;
  int flush = 128;  // columns between two additions to the float sums: 32 or 128
  int tiles8 = 0;
  bool fused = false;
};

// Whether blocks may have more than 100 KB of shared memory, which decides the depth of the rings;
// the device code of an architecture and the host agree on it.
#ifdef __CUDA_ARCH__
inline constexpr bool kLargeShared = __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900;
#else
inline constexpr bool kLargeShared = true;  // where host code only names device functions
#endif

// Memory of a block.
struct MatvecMemory {
  int stage_bytes, stages, sum_tiles, sum_bytes;

  constexpr int ring_bytes() const { return kBlockWarps * stages * stage_bytes; }
};

constexpr MatvecMemory matvec_memory(int bits, int flush, int tiles8, bool large) {
  const int codes = bits * 512;
  const int stage = codes + (flush == 32 ? 288 : 128);
  const int deep = bits == 2 ? 9 : bits == 3 ? 6 : bits == 4 ? 5 : 2;
  const int shallow = bits == 2 ? 5 : bits == 3 ? 4 : bits == 4 ? 3 : 2;
  const int small = bits == 2 ? 4 : bits == 3 ? 3 : bits == 4 ? 2 : 1;
  const int stages = !large ? small : tiles8 <= 1 ? deep : shallow;
  const int tokens = tiles8 == 0 ? 1 : tiles8 == 1 ? 8 : 16;
  const int stride = tiles8 == 0 ? 16 : 20;
  const int sum_tiles = tiles8 == 0 ? 16 : tiles8 == 1 ? 4 : 2;
  return {stage, stages, sum_tiles, sum_tiles * kBlockWarps * tokens * stride * 4};
}

// Bytes of shared memory that one unit's inputs take.
constexpr int input_bytes(int vectors, int tiles8, int x_group) {
  const int scales = tiles8 == 0 ? 1 : 8 * tiles8;
  return vectors * kUnitColumns + scales * (kUnitColumns / x_group) * 8;
}

using MatvecKernel = void (*)(MatvecArgs);
template <int Bits>
MatvecKernel matvec_kernel(const MatvecKind& kind);  // one file per number of bits

}  // namespace walsh::cuda
