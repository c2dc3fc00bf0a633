// Makes inputs and weights as integer products have them, for tests of GPU products of many
// vectors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cuda/random_weights.h"

namespace walsh::cuda::test {

// Holds random int8 inputs on the device in the order of Activations, and as floats [m][cols].
struct RandomActivations {
  Activations device;
  std::vector<float> values;

  // Inputs are zero from column `used` on, as prepared inputs are.
  RandomActivations(int64_t m, int64_t used, int64_t cols, int group, int planes, uint64_t seed)
      : device(m, cols, group, planes), values(static_cast<size_t>(m * cols)) {
    Random random(seed);
    const auto rows = static_cast<size_t>(m * planes);
    std::vector<int8_t> q(device.q.bytes());
    std::vector<float> scales(device.scales.bytes() / 4);
    std::vector<int32_t> sums(device.sums.bytes() / 4);
    const size_t sum_group = static_cast<size_t>(cols) * rows / sums.size();
    for (size_t row = 0; row < rows; ++row) {
      for (int64_t c = 0; c < cols; ++c) {
        const auto value =
            static_cast<int8_t>(c < used ? static_cast<int>(random.below(255)) - 127 : 0);
        const int64_t at = c / 128 * 128 + activation_byte(static_cast<int>(c % 128));
        const size_t block =
            row * static_cast<size_t>(cols / group) + static_cast<size_t>(c / group);
        q[row * static_cast<size_t>(cols) + static_cast<size_t>(at)] = value;
        if (c % group == 0) {
          const double size = row % static_cast<size_t>(planes) ? 0.0001 : 0.01;
          scales[block] = static_cast<float>(size * (0.5 + random.uniform()));
        }
        sums[(row * static_cast<size_t>(cols) + static_cast<size_t>(c)) / sum_group] += value;
        values[row / static_cast<size_t>(planes) * static_cast<size_t>(cols) +
               static_cast<size_t>(c)] += scales[block] * value;
      }
    }
    device.q = to_device(q);
    device.scales = to_device(scales);
    device.sums = to_device(sums);
  }
};

// Returns the weights of a pass as integer kernels have them, [rows][cols of the matrix].
inline std::vector<float> integer_weights(const RandomWeights& w, int pass) {
  const Tensor& t = w.tensor;
  const ScalarCode& code = t.format->code[pass];
  const int64_t padded = padded_cols(*t.format, t.cols), cols = w.pass[pass].cols;
  std::vector<float> all(static_cast<size_t>(t.rows * cols)), row(static_cast<size_t>(padded));
  // The same tensor gets other levels: the specification's decoder does the rest.
  std::vector<float> levels;
  for (int c = 0; c < 1 << code.bits && code.levels_i8 != nullptr; ++c)
    levels.push_back(code.unit * code.levels_i8[c]);
  Format format = *t.format;
  if (code.levels_i8 != nullptr) format.code[pass].levels = levels.data();
  Tensor changed = t;
  changed.format = &format;
  for (int64_t r = 0; r < t.rows; ++r) {
    decode_pass_row(changed, pass, r, row.data());
    std::copy(row.begin(), row.end(), all.begin() + r * cols);
  }
  return all;
}

}  // namespace walsh::cuda::test
