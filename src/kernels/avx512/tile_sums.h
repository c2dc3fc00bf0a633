// Sums int8 products by a matrix unit (AMX). A tile is up to 16 rows of 64 bytes. The panels of a
// slab have the form that it needs: 16 quads of columns, each with 16 rows of a matrix times 4
// bytes, are one tile, and 64 columns of 16 vectors are another; their product is a tile of int32
// sums. Where scales are for 32 or 16 columns, both tiles have fewer columns.
//
// A class of tiles has kPresent, a class Use that lives as long as tiles are used and is told their
// columns, and
//   load<Tile>(from, stride)     reads the rows of a tile, `stride` bytes apart
//   zero<Tile>(), store<Tile>(to, stride)
//   dot<Sums, Vectors, Weights>  sums[v][row] += vectors[v][4 k + i] * weights[k][4 row + i] over
//                                all quads k and i < 4, of signed bytes
#pragma once

#include <cstdint>

#include "base/unroll.h"
#include "kernels/ops.h"

namespace walsh::detail {

inline constexpr int kTileVectors = 16;
inline constexpr int kMostTileVectors = 2 * kTileVectors;  // They are summed at once.

// There are eight tiles. The first four hold sums, [vector tile][panel], the next two hold vectors,
// and the last two hold weights.
inline constexpr int kFirstVectorTile = 4, kFirstWeightTile = 6;

// Returns how many columns a tile has if tiles must not cross the end of a step; a multiple of 16.
constexpr int64_t tile_columns_of(int64_t step) {
  return step % 64 == 0 ? 64 : step % 32 == 0 ? 32 : 16;
}

// Stands for the matrix unit on processors that have none.
struct NoTiles {
  static constexpr bool kPresent = false;
  struct Use {
    explicit Use(int64_t) {}
  };
};

template <class Tiles, int Panels, int VectorTiles>
struct TileSums {
  // Computes sums[vector][panel][row] for 16 VectorTiles vectors from the bytes of `columns`
  // columns, a multiple of the columns of a tile. The bytes are [quad][slab_panels][16][4], of
  // which the first `Panels` panels take part.
  static void sum(const uint8_t* bytes, int slab_panels, const int8_t* q, int64_t ldq,
                  int64_t columns, int64_t tile_columns, int32_t* sums) {
    constexpr int64_t kRowBytes = 4 * kPanelRows;  // It is the size of one panel and quad.
    const int64_t quad_bytes = kRowBytes * slab_panels;
    unroll<VectorTiles * Panels>([&](auto tile) WALSH_INLINE { Tiles::template zero<tile>(); });
    for (int64_t c = 0; c < columns; c += tile_columns) {
      unroll<Panels>([&](auto p) WALSH_INLINE {
        Tiles::template load<kFirstWeightTile + p>(bytes + c / 4 * quad_bytes + kRowBytes * p,
                                                   quad_bytes);
      });
      unroll<VectorTiles>([&](auto v) WALSH_INLINE {
        Tiles::template load<kFirstVectorTile + v>(q + kTileVectors * v * ldq + c, ldq);
        unroll<Panels>([&](auto p) WALSH_INLINE {
          Tiles::template dot<v * Panels + p, kFirstVectorTile + v, kFirstWeightTile + p>();
        });
      });
    }
    unroll<VectorTiles>([&](auto v) WALSH_INLINE {
      unroll<Panels>([&](auto p) WALSH_INLINE {
        Tiles::template store<v * Panels + p>(sums + (kTileVectors * v * Panels + p) * kPanelRows,
                                              Panels * kRowBytes);
      });
    });
  }
};

}  // namespace walsh::detail
