// The forward pass written once over vectors of classes; see trellis_kernels.h. `Arch` gives type
// Reg of kLanes floats, load, store, set, sub, min, fma and spread<k>(p): lane i = p[i >> k]. In an
// unnamed namespace, so that a function compiled for one instruction set is never merged with its
// namesake compiled for another.
#pragma once

#include "quantize/trellis/trellis_kernels.h"

namespace {

using walsh::detail::TrellisTable;

// kBits is the step's bits where a vector of classes follows several classes, 4 where it follows
// one.
template <class Arch, int kBits, int kValues>
void forward_steps(const TrellisTable& table, const float* x, int steps, float* best) {
  using Reg = typename Arch::Reg;
  constexpr int kBlock = TrellisTable::kBlock;
  const int bits = table.step_bits, fan = 1 << bits;
  const int classes = table.classes();
  for (int t = 0; t < steps; ++t, x += kValues, best += classes) {
    float* to = best + classes;
    const Reg first = Arch::set(x[0]);
    const Reg second = Arch::set(x[kValues - 1]);
    for (int p = 0; p < classes; p += Arch::kLanes) {
      const float* levels = table.ordered.data() + p / kBlock * kBlock * fan * kValues + p % kBlock;
      const auto cost = [&](int h) __attribute__((always_inline)) {
        const Reg before = Arch::template spread<kBits>(best + ((h * classes + p) >> bits));
        const float* level = levels + h * kValues * kBlock;
        const Reg d = Arch::sub(first, Arch::load(level));
        const Reg c = Arch::fma(d, d, before);
        if constexpr (kValues == 1) return c;
        const Reg e = Arch::sub(second, Arch::load(level + kBlock));
        return Arch::fma(e, e, c);
      };
      Reg least = cost(0);
      for (int h = 1; h < fan; ++h)
        least = Arch::min(least, cost(h));
      Arch::store(to + p, least);
    }
  }
}

template <class Arch, int kValues>
void forward_values(const TrellisTable& table, const float* x, int steps, float* best) {
  switch (table.step_bits) {
    case 2:
      return forward_steps<Arch, 2, kValues>(table, x, steps, best);
    case 3:
      return forward_steps<Arch, 3, kValues>(table, x, steps, best);
    default:
      return forward_steps<Arch, 4, kValues>(table, x, steps, best);
  }
}

template <class Arch>
void forward(const TrellisTable& table, const float* x, int steps, float* best) {
  if (table.values == 1) return forward_values<Arch, 1>(table, x, steps, best);
  forward_values<Arch, 2>(table, x, steps, best);
}

}  // namespace
