// Makes activations whose channels are correlated and differ in size, and their moments, for tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "codec/feedback/input_statistics.h"

namespace walsh::testing_support {

// Returns x[tokens][width]: a few strong directions, the rest decaying, channel sizes from 1/4 to
// 4.
inline std::vector<float> correlated_activations(int64_t tokens, int64_t width, uint64_t seed) {
  constexpr int64_t kDirections = 12;
  Random random(seed);
  std::vector<double> directions(static_cast<size_t>(kDirections * width)),
      size(static_cast<size_t>(width));
  for (double& v : directions)
    v = random.normal();
  for (double& v : size)
    v = std::exp2(4 * random.uniform() - 2);
  std::vector<float> x(static_cast<size_t>(tokens * width));
  for (int64_t t = 0; t < tokens; ++t) {
    double strength[kDirections];
    for (int64_t d = 0; d < kDirections; ++d)
      strength[d] = random.normal() / static_cast<double>(1 + d);
    for (int64_t c = 0; c < width; ++c) {
      double sum = 0.3 * random.normal();
      for (int64_t d = 0; d < kDirections; ++d)
        sum += strength[d] * directions[static_cast<size_t>(d * width + c)];
      x[static_cast<size_t>(t * width + c)] =
          static_cast<float>(sum * size[static_cast<size_t>(c)]);
    }
  }
  return x;
}

inline InputMoments moments_of(const std::vector<float>& x, int64_t width, ThreadPool& pool) {
  InputMoments moments(width);
  moments.add(x.data(), width, static_cast<int64_t>(x.size()) / width, pool);
  return moments;
}

}  // namespace walsh::testing_support
