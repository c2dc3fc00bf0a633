#include "kernels/probe_loops.h"

#include "kernels/amx/tiles.h"
#include "kernels/avx512/tile_sums.h"

namespace walsh::amx {

int64_t multiply_add(int64_t rounds, int32_t* sink) {
  // A product of two tiles has this many multiply-adds.
  constexpr int64_t kTileAdds = 16 * 16 * 64;
  alignas(64) int8_t bytes[16 * 64];
  for (int i = 0; i < 16 * 64; ++i)
    bytes[i] = static_cast<int8_t>(rounds + i);
  alignas(64) int32_t sums[16 * 16];
  const Int8Tiles::Use use(64);
  detail::unroll<4>([&](auto i) WALSH_INLINE {
    Int8Tiles::zero<i>();
    Int8Tiles::load<detail::kFirstVectorTile + i>(bytes, 64);
  });
  for (int64_t r = 0; r < rounds; ++r) {
    detail::unroll<4>([&](auto i) WALSH_INLINE {
      Int8Tiles::dot<i, detail::kFirstVectorTile + i / 2, detail::kFirstWeightTile + i % 2>();
    });
  }
  detail::unroll<4>([&](auto i) WALSH_INLINE {
    Int8Tiles::store<i>(sums, 64);
    for (const int32_t v : sums)
      *sink ^= v;
  });
  return rounds * 4 * kTileAdds;
}

}  // namespace walsh::amx
