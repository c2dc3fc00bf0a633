// Computes the relative error of a product, for tests.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace walsh::cuda {

// Divides the length of the difference by the length of what is expected.
inline double relative_error(const std::vector<float>& got, const std::vector<float>& expected) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += std::pow(double{got[i]} - expected[i], 2);
    norm += double{expected[i]} * expected[i];
  }
  return std::sqrt(error / norm);
}

}  // namespace walsh::cuda
