// Wraps Intel's AMX, a matrix unit with tiles of 16 rows of 64 bytes (Intel's Architecture
// Instruction Set Extensions manual, chapter 3). kernels/avx512/tile_sums.h says what the members
// do.
#pragma once

#include <cstdint>

#include "kernels/avx512/tile_sums.h"

namespace walsh::amx {

// The compiler does not know the tile registers, which is safe because nothing else in this program
// uses them.
struct Int8Tiles {
  static constexpr bool kPresent = true;

  // Tells the processor the sizes of the tiles and, at the end, that their content is not needed
  // any more.
  class Use {
   public:
    explicit Use(int64_t columns) {
      struct alignas(64) Sizes {
        uint8_t palette = 1, first_row = 0, unused[14] = {};
        uint16_t row_bytes[16] = {};
        uint8_t rows[16] = {};
      } sizes;
      static_assert(sizeof(Sizes) == 64);
      for (int tile = 0; tile < 8; ++tile) {
        const bool vectors = tile >= detail::kFirstVectorTile && tile < detail::kFirstWeightTile;
        const bool weights = tile >= detail::kFirstWeightTile;
        sizes.row_bytes[tile] = static_cast<uint16_t>(vectors ? columns : 64);
        sizes.rows[tile] = static_cast<uint8_t>(weights ? columns / 4 : 16);
      }
      __asm__ volatile("ldtilecfg %0" ::"m"(sizes));
    }
    ~Use() { __asm__ volatile("tilerelease" ::); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
  };

  template <int Tile>
  static void load(const void* from, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(Tile)
                     : "memory");
  }
  template <int Tile>
  static void zero() {
    __asm__ volatile("tilezero %%tmm%c0" ::"i"(Tile));
  }
  template <int Tile>
  static void store(void* to, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(Tile) : "memory");
  }
  template <int Sums, int Vectors, int Weights>
  static void dot() {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sums), "i"(Vectors),
                     "i"(Weights));
  }
};

}  // namespace walsh::amx
