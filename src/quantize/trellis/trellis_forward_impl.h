// The forward pass written once over vectors of classes; see trellis_kernels.h. `Arch` gives type
// Reg of kLanes floats, load, store, set, sub, min, fma and spread<k>(p): lane i = p[i >> k]. In an
// unnamed namespace, so that a function compiled for one instruction set is never merged with its
// namesake compiled for another.
#pragma once

#include <cstdint>

#include "quantize/trellis/trellis_kernels.h"

namespace {

using walsh::detail::TrellisTable;

// kBits is the step's bits where a vector of classes follows several classes, 4 where it follows
// one. Levels are read once for all tiles: those of many states come from the second-level cache.
template <class Arch, int kBits, int kValues, int kTiles>
void forward_steps(const TrellisTable& table, const float* const* x, int steps,
                   float* const* best) {
  using Reg = typename Arch::Reg;
  constexpr int kBlock = TrellisTable::kBlock;
  const int bits = table.step_bits, fan = 1 << bits;
  const int classes = table.classes();
  for (int t = 0; t < steps; ++t) {
    const float* from[kTiles];
    Reg first[kTiles], second[kTiles];
    for (int i = 0; i < kTiles; ++i) {
      from[i] = best[i] + int64_t{t} * classes;
      first[i] = Arch::set(x[i][t * kValues]);
      second[i] = Arch::set(x[i][t * kValues + kValues - 1]);
    }
    for (int p = 0; p < classes; p += Arch::kLanes) {
      const float* levels = table.ordered.data() + p / kBlock * kBlock * fan * kValues + p % kBlock;
      Reg least[kTiles];
      const auto add = [&](int h, const auto& take) __attribute__((always_inline)) {
        const float* level = levels + h * kValues * kBlock;
        const Reg one = Arch::load(level);
        const Reg two = kValues == 1 ? one : Arch::load(level + kBlock);
        for (int i = 0; i < kTiles; ++i) {
          const Reg before = Arch::template spread<kBits>(from[i] + ((h * classes + p) >> bits));
          const Reg d = Arch::sub(first[i], one);
          Reg c = Arch::fma(d, d, before);
          if constexpr (kValues == 2) {
            const Reg e = Arch::sub(second[i], two);
            c = Arch::fma(e, e, c);
          }
          take(least[i], c);
        }
      };
      add(0, [](Reg& to, Reg c) { to = c; });
      for (int h = 1; h < fan; ++h)
        add(h, [](Reg& to, Reg c) { to = Arch::min(to, c); });
      for (int i = 0; i < kTiles; ++i)
        Arch::store(best[i] + int64_t{t + 1} * classes + p, least[i]);
    }
  }
}

template <class Arch, int kValues, int kTiles>
void forward_values(const TrellisTable& table, const float* const* x, int steps,
                    float* const* best) {
  switch (table.step_bits) {
    case 2:
      return forward_steps<Arch, 2, kValues, kTiles>(table, x, steps, best);
    case 3:
      return forward_steps<Arch, 3, kValues, kTiles>(table, x, steps, best);
    default:
      return forward_steps<Arch, 4, kValues, kTiles>(table, x, steps, best);
  }
}

template <class Arch>
void forward(const TrellisTable& table, const float* x, int steps, float* best) {
  if (table.values == 1) return forward_values<Arch, 1, 1>(table, &x, steps, &best);
  forward_values<Arch, 2, 1>(table, &x, steps, &best);
}

// The same of TrellisTable::kTilesAtOnce tiles.
template <class Arch>
void forward_tiles(const TrellisTable& table, const float* const* x, int steps,
                   float* const* best) {
  constexpr int kTiles = TrellisTable::kTilesAtOnce;
  if (table.values == 1) return forward_values<Arch, 1, kTiles>(table, x, steps, best);
  forward_values<Arch, 2, kTiles>(table, x, steps, best);
}

}  // namespace
