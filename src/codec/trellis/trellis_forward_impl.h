// Writes the forward pass once over vectors of classes; see trellis_kernels.h. `Arch` gives type
// Reg of kLanes int32 or twice as many int16, load, store, set, min and add_squares(c, a, b): c
// plus the sums of the squares of the two int16 of a - b. It is in an unnamed namespace, so that a
// function compiled for one instruction set is never merged with its namesake compiled for another.
#pragma once

#include <cstdint>
#include <cstring>

#include "codec/trellis/trellis_kernels.h"

namespace {

using walsh::detail::TrellisTable;

// Takes kVectors vectors of classes at once, so that the costs of several sums are under way.
// Levels are read once for all tiles: those of many states come from the second-level cache.
template <class Arch, int kTiles, int kVectors>
void forward_steps(const TrellisTable& table, const int16_t* const* x, int steps,
                   int32_t* const* best) {
  using Reg = typename Arch::Reg;
  constexpr int kBlock = TrellisTable::kBlock, kLanes = Arch::kLanes;
  const int bits = table.step_bits, fan = 1 << bits;
  const int classes = table.classes();
  for (int t = 0; t < steps; ++t) {
    Reg target[kTiles];
    for (int i = 0; i < kTiles; ++i) {
      int32_t both;
      std::memcpy(&both, x[i] + 2 * t, sizeof both);
      target[i] = Arch::set(both);
    }
    for (int p = 0; p < classes; p += kVectors * kLanes) {
      const int16_t* levels[kVectors];
      const int32_t* before[kVectors];  // The first tile has these.
      Reg least[kVectors][kTiles];
      for (int v = 0; v < kVectors; ++v) {
        const int of = p + v * kLanes;
        levels[v] = table.ordered.data() + 2 * (of / kBlock * kBlock * fan + of % kBlock);
        before[v] = best[0] + int64_t{t} * classes + (of >> bits);
        for (int i = 0; i < kTiles; ++i)
          least[v][i] = Arch::set(INT32_MAX);
      }
      int64_t between[kTiles];  // It is the distance between the costs of tiles.
      for (int i = 0; i < kTiles; ++i)
        between[i] = best[i] - best[0];
      for (int h = 0; h < fan; ++h) {
        for (int v = 0; v < kVectors; ++v) {
          const Reg level = Arch::load(levels[v] + 2 * h * kBlock);
          const int32_t* of = before[v] + ((h * classes) >> bits);
          for (int i = 0; i < kTiles; ++i) {
            const Reg cost = Arch::add_squares(Arch::set(of[between[i]]), level, target[i]);
            least[v][i] = Arch::min(least[v][i], cost);
          }
        }
      }
      for (int v = 0; v < kVectors; ++v) {
        for (int i = 0; i < kTiles; ++i)
          Arch::store(best[i] + int64_t{t + 1} * classes + p + v * kLanes, least[v][i]);
      }
    }
  }
}

template <class Arch, int kVectors>
void forward_tiles(const TrellisTable& table, const int16_t* const* x, int tiles, int steps,
                   int32_t* const* best) {
  static_assert(TrellisTable::kTilesAtOnce == 4);
  switch (tiles) {
    case 1:
      return forward_steps<Arch, 1, kVectors>(table, x, steps, best);
    case 2:
      return forward_steps<Arch, 2, kVectors>(table, x, steps, best);
    case 3:
      return forward_steps<Arch, 3, kVectors>(table, x, steps, best);
    default:
      return forward_steps<Arch, 4, kVectors>(table, x, steps, best);
  }
}

}  // namespace
