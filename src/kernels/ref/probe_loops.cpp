#include "kernels/probe_loops.h"

namespace walsh::ref {

uint64_t read_lines(const uint64_t* lines, int64_t count) {
  uint64_t sum[8] = {};
  for (int64_t i = 0; i < count * 8; i += 8) {
    for (int k = 0; k < 8; ++k)
      sum[k] ^= lines[i + k];
  }
  uint64_t all = 0;
  for (uint64_t s : sum)
    all ^= s;
  return all;
}

int64_t multiply_add(int64_t rounds, int32_t* sink) {
  constexpr int kLanes = 8;
  int32_t sum[kLanes] = {};
  // They are volatile, because the products must not be known at compile time.
  volatile int8_t a = 3, b = 5;
  for (int64_t i = 0; i < rounds; ++i) {
    const int8_t x = a, y = b;
    for (int k = 0; k < kLanes; ++k)
      sum[k] += x * static_cast<int8_t>(y + k);
  }
  for (int32_t s : sum)
    *sink ^= s;
  return rounds * kLanes;
}

}  // namespace walsh::ref
