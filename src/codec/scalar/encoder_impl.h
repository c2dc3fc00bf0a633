// EncoderKernels are written once on vectors of kLanes floats; each instruction set's folder
// compiles them with its own flags and lane count. They are in an unnamed namespace, so that a
// function compiled for one instruction set is never merged with its namesake compiled for another.
#pragma once

#include <cstring>

#include "codec/scalar/encoder_kernels.h"

namespace {

using walsh::detail::Ladder;
using walsh::detail::Products;

constexpr int kLanes = WALSH_LANES;
constexpr int kSums = 16;               // A sum has this many partial sums.
constexpr int kParts = kSums / kLanes;  // in this many vectors.
using Vec [[gnu::vector_size(kLanes * sizeof(float))]] = float;
using Mask [[gnu::vector_size(kLanes * sizeof(int))]] = int;

inline Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

inline void store(float* p, Vec v) {
  std::memcpy(p, &v, sizeof(v));
}

inline Vec broadcast(float f) {
  return Vec{} + f;
}

inline void clear(Vec (&sums)[kParts]) {
  for (Vec& v : sums)
    v = Vec{};
}

inline float reduce(const Vec (&sums)[kParts]) {
  float s[kSums];
  for (int j = 0; j < kParts; ++j)
    store(s + j * kLanes, sums[j]);
  for (int width = kSums / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i)
      s[i] += s[i + width];
  }
  return s[0];
}

float abs_max(const float* x, int64_t n) {
  Vec best[kParts];
  clear(best);
  for (int64_t i = 0; i < n; i += kSums) {
    for (int j = 0; j < kParts; ++j) {
      const Vec v = load(x + i + j * kLanes);
      const Vec magnitude = v < 0 ? -v : v;
      best[j] = magnitude > best[j] ? magnitude : best[j];
    }
  }
  float lanes[kSums];
  for (int j = 0; j < kParts; ++j)
    store(lanes + j * kLanes, best[j]);
  float result = 0;
  for (float v : lanes)
    result = v > result ? v : result;
  return result;
}

float sum(const float* x, int64_t n) {
  Vec sums[kParts];
  clear(sums);
  for (int64_t i = 0; i < n; i += kSums) {
    for (int j = 0; j < kParts; ++j)
      sums[j] += load(x + i + j * kLanes);
  }
  return reduce(sums);
}

float sum_squares(const float* x, int64_t n) {
  Vec sums[kParts];
  clear(sums);
  for (int64_t i = 0; i < n; i += kSums) {
    for (int j = 0; j < kParts; ++j) {
      const Vec v = load(x + i + j * kLanes);
      sums[j] += v * v;
    }
  }
  return reduce(sums);
}

void scale_shift(const float* x, int64_t n, float factor, float shift, float* out) {
  for (int64_t i = 0; i < n; i += kLanes)
    store(out + i, load(x + i) * factor - shift);
}

// Returns the level of each lane, among `Count` ascending ones.
template <int Count>
inline Vec choose(const Ladder& ladder, Vec v) {
  Vec level = broadcast(ladder.levels[0]);
  for (int i = 0; i + 1 < Count; ++i)
    level = v > ladder.thresholds[i] ? broadcast(ladder.levels[i + 1]) : level;
  return level;
}

template <int Count>
Products products_of(const Ladder& ladder_in, const float* x, int64_t n) {
  const Ladder ladder = ladder_in;
  Vec xq[kParts], qq[kParts];
  clear(xq);
  clear(qq);
  for (int64_t i = 0; i < n; i += kSums) {
    for (int j = 0; j < kParts; ++j) {
      const Vec v = load(x + i + j * kLanes);
      const Vec level = choose<Count>(ladder, v);
      xq[j] += v * level;
      qq[j] += level * level;
    }
  }
  return {reduce(xq), reduce(qq)};
}

template <int Count>
float error_of(const Ladder& ladder_in, const float* x, int64_t n) {
  const Ladder ladder = ladder_in;
  Vec sums[kParts];
  clear(sums);
  for (int64_t i = 0; i < n; i += kSums) {
    for (int j = 0; j < kParts; ++j) {
      const Vec v = load(x + i + j * kLanes);
      const Vec difference = v - choose<Count>(ladder, v);
      sums[j] += difference * difference;
    }
  }
  return reduce(sums);
}

template <int Count>
void ranks_of(const Ladder& ladder_in, const float* x, int64_t n, uint8_t* ranks) {
  const Ladder ladder = ladder_in;
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec v = load(x + i);
    Mask rank = {};
    for (int t = 0; t + 1 < Count; ++t)
      rank -= v > ladder.thresholds[t];  // A true lane is -1.
    for (int l = 0; l < kLanes; ++l)
      ranks[i + l] = static_cast<uint8_t>(rank[l]);
  }
}

// Calls f.template operator()<Count>() with the ladder's count as a template argument.
template <typename F>
auto with_count(int count, F f) {
  switch (count) {
    case 3:
      return f.template operator()<3>();
    case 4:
      return f.template operator()<4>();
    case 6:
      return f.template operator()<6>();
    case 8:
      return f.template operator()<8>();
    default:
      return f.template operator()<16>();
  }
}

Products products(const Ladder& ladder, const float* x, int64_t n) {
  return with_count(ladder.count, [&]<int Count>() { return products_of<Count>(ladder, x, n); });
}

float error(const Ladder& ladder, const float* x, int64_t n) {
  return with_count(ladder.count, [&]<int Count>() { return error_of<Count>(ladder, x, n); });
}

void assign(const Ladder& ladder, const float* x, int64_t n, uint8_t* ranks) {
  with_count(ladder.count, [&]<int Count>() { ranks_of<Count>(ladder, x, n, ranks); });
}

}  // namespace
