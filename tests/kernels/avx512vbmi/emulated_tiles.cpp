#include "avx512vbmi/emulated_tiles.h"

#include <cstring>

#include "codec/product/avx512vbmi/product_decoder.h"
#include "codec/trellis/avx512vbmi/trellis_decoder.h"
#include "kernels/avx512/matmul_vnni.h"
#include "kernels/avx512vbmi/permute_lookup.h"

namespace walsh::test {

namespace {

constexpr int kRows = 16, kRowBytes = 64;

thread_local uint8_t tiles[8][kRows][kRowBytes];
thread_local bool in_use = false;

// Tiles that nobody has asked for hold what no sum can be made of.
struct EmulatedTiles {
  static constexpr bool kPresent = true;

  class Use {
   public:
    Use() {
      in_use = true;
      std::memset(tiles, 0x5a, sizeof(tiles));
    }
    ~Use() { in_use = false; }
  };

  template <int Tile>
  static void load(const void* from, int64_t stride) {
    if (!in_use) return;
    for (int row = 0; row < kRows; ++row)
      std::memcpy(tiles[Tile][row], static_cast<const uint8_t*>(from) + row * stride, kRowBytes);
  }
  template <int Tile>
  static void zero() {
    std::memset(tiles[Tile], 0, sizeof(tiles[Tile]));
  }
  template <int Tile>
  static void store(void* to, int64_t stride) {
    for (int row = 0; row < kRows; ++row)
      std::memcpy(static_cast<uint8_t*>(to) + row * stride, tiles[Tile][row], kRowBytes);
  }
  template <int Sums, int Vectors, int Weights>
  static void dot() {
    for (int v = 0; v < kRows; ++v) {
      int32_t sums[kRows];
      std::memcpy(sums, tiles[Sums][v], kRowBytes);
      for (int k = 0; k < kRows; ++k) {
        for (int row = 0; row < kRows; ++row) {
          for (int i = 0; i < 4; ++i)
            sums[row] +=
                static_cast<int8_t>(tiles[Vectors][v][4 * k + i]) * tiles[Weights][k][4 * row + i];
        }
      }
      std::memcpy(tiles[Sums][v], sums, kRowBytes);
    }
  }
};

}  // namespace

void matmul_i8_by_emulated_tiles(const PanelMatrix& w, const ActivationsI8& x, int64_t m, float* y,
                                 int64_t ldy, int64_t panel_begin, int64_t panel_end,
                                 bool accumulate) {
  using Matmul = avx512::IntegerMatmul<EmulatedTiles>;
  const avx512::VnniCall call(w, x, m, y, ldy, panel_begin, panel_end, accumulate);
  if (w.trellis) {
    Matmul::run_trellis<avx512vbmi::TrellisDecoder>(call);
  } else if (w.product) {
    Matmul::run_product<avx512vbmi::ProductDecoder>(call);
  } else {
    Matmul::run_scalar<avx512vbmi::PermuteLookup>(call);
  }
}

}  // namespace walsh::test
