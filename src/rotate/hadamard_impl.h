// Writes the butterfly once, on vectors of kLanes floats. Each instruction set's folder compiles it
// with its own flags and lane count. Every output is the same tree of additions whatever the lane
// count, so the results are equal bit for bit.
//
// Everything lives in an unnamed namespace: a function compiled for one instruction set must never
// be merged with its namesake compiled for another.
#pragma once

#include <cstring>

namespace {

constexpr int kLanes = WALSH_LANES;
using Vec [[gnu::vector_size(kLanes * sizeof(float))]] = float;

inline Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

inline void store(float* p, Vec v) {
  std::memcpy(p, &v, sizeof(v));
}

// Replaces lanes l and l ^ Distance by their sum (at the lower lane) and difference (at the upper
// one).
template <int Distance>
inline Vec butterfly_within(Vec v) {
  Vec partner, sign;
  for (int l = 0; l < kLanes; ++l) {
    partner[l] = v[l ^ Distance];
    sign[l] = (l & Distance) != 0 ? -1.0f : 1.0f;
  }
  return partner + sign * v;
}

inline Vec transform_within(Vec v) {
  v = butterfly_within<1>(v);
  v = butterfly_within<2>(v);
  if constexpr (kLanes > 4) v = butterfly_within<4>(v);
  if constexpr (kLanes > 8) v = butterfly_within<8>(v);
  return v;
}

// Performs the stages of distance h and 2h in one pass over memory.
inline void two_stages(float* x, int n, int h) {
  for (int block = 0; block < n; block += 4 * h) {
    for (int i = block; i < block + h; i += kLanes) {
      const Vec a = load(x + i), b = load(x + i + h);
      const Vec c = load(x + i + 2 * h), d = load(x + i + 3 * h);
      const Vec sum0 = a + b, difference0 = a - b, sum1 = c + d, difference1 = c - d;
      store(x + i, sum0 + sum1);
      store(x + i + h, difference0 + difference1);
      store(x + i + 2 * h, sum0 - sum1);
      store(x + i + 3 * h, difference0 - difference1);
    }
  }
}

inline void one_stage(float* x, int n, int h) {
  for (int block = 0; block < n; block += 2 * h) {
    for (int i = block; i < block + h; i += kLanes) {
      const Vec a = load(x + i), b = load(x + i + h);
      store(x + i, a + b);
      store(x + i + h, a - b);
    }
  }
}

inline void transform(float* x, int n) {
  for (int i = 0; i < n; i += kLanes)
    store(x + i, transform_within(load(x + i)));
  int h = kLanes;
  for (; 4 * h <= n; h *= 4)
    two_stages(x, n, h);
  if (h < n) one_stage(x, n, h);
}

}  // namespace
