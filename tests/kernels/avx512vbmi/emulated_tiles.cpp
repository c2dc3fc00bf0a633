#include "avx512vbmi/emulated_tiles.h"

#include <cstring>

#include "codec/product/avx512vbmi/product_decoder.h"
#include "codec/trellis/avx512vbmi/trellis_decoder.h"
#include "kernels/avx512/matmul_vnni.h"
#include "kernels/avx512vbmi/permute_lookup.h"

namespace walsh::test {

namespace {

constexpr int kRows = 16, kRowBytes = 64;

thread_local int8_t tiles[8][kRows][kRowBytes];
thread_local int tile_columns = 0;  // none: tiles are not in use
thread_local int64_t products = 0;

// Tiles that nobody has asked for hold what no sum can be made of.
struct EmulatedTiles {
  static constexpr bool kPresent = true;

  class Use {
   public:
    explicit Use(int64_t columns) {
      tile_columns = static_cast<int>(columns);
      std::memset(tiles, 0x5a, sizeof(tiles));
    }
    ~Use() { tile_columns = 0; }
  };

  static int rows_of(int tile) {
    return tile >= detail::kFirstWeightTile ? tile_columns / 4 : kRows;
  }
  static size_t row_bytes_of(int tile) {
    const bool vectors = tile >= detail::kFirstVectorTile && tile < detail::kFirstWeightTile;
    return static_cast<size_t>(vectors ? tile_columns : kRowBytes);
  }

  template <int Tile>
  static void load(const void* from, int64_t stride) {
    if (tile_columns == 0) return;
    for (int row = 0; row < rows_of(Tile); ++row) {
      std::memcpy(tiles[Tile][row], static_cast<const int8_t*>(from) + row * stride,
                  row_bytes_of(Tile));
    }
  }
  template <int Tile>
  static void zero() {
    std::memset(tiles[Tile], 0, sizeof(tiles[Tile]));
  }
  template <int Tile>
  static void store(void* to, int64_t stride) {
    for (int row = 0; row < rows_of(Tile); ++row) {
      std::memcpy(static_cast<int8_t*>(to) + row * stride, tiles[Tile][row], row_bytes_of(Tile));
    }
  }
  template <int Sums, int Vectors, int Weights>
  static void dot() {
    ++products;
    for (int v = 0; v < kRows; ++v) {
      int32_t sums[kRows];
      std::memcpy(sums, tiles[Sums][v], kRowBytes);
      for (int k = 0; k < tile_columns / 4; ++k) {
        for (int row = 0; row < kRows; ++row) {
          for (int i = 0; i < 4; ++i)
            sums[row] += tiles[Vectors][v][4 * k + i] * tiles[Weights][k][4 * row + i];
        }
      }
      std::memcpy(tiles[Sums][v], sums, kRowBytes);
    }
  }
};

}  // namespace

int64_t matmul_i8_by_emulated_tiles(const PanelMatmul& call) {
  const int64_t before = products;
  using Matmul = avx512::IntegerMatmul<EmulatedTiles>;
  if (call.w.trellis) {
    Matmul::run_trellis<avx512vbmi::TrellisDecoder>(call);
  } else if (call.w.product) {
    Matmul::run_product<avx512vbmi::ProductDecoder>(call);
  } else {
    Matmul::run_scalar<avx512vbmi::PermuteLookup>(call);
  }
  return products - before;
}

}  // namespace walsh::test
