// Compares trellis matrices whose tiles a device searches with the CPU's, for tests.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "codec/feedback/error_feedback.h"
#include "codec/trellis/tile_device.h"
#include "codec/small_states.h"
#include "quantize/correlated.h"
#include "quantize/encoded.h"
#include "walsh/error.h"

namespace walsh::testing_support {

// Holds the stored bytes, or the reason of the refusal.
struct TileResult {
  std::vector<std::byte> bytes;
  std::string refusal;
  double error = 0, norm = 0;

  bool operator==(const TileResult&) const = default;
};

inline Rotation tile_rotation(const Format& format) {
  Rotation rotation;
  rotation.block = format.rotation_block;
  rotation.seed = rotation_seed(42, 0u, 0);
  return rotation;
}

inline TileResult encode_tiles(const Format& format, const Matrix& m, Effort effort,
                               const ErrorFeedback* feedback, detail::TileDevice* device) {
  const Rotation rotation[2] = {tile_rotation(format), {}};
  ThreadPool pool(2);
  const auto read_rows = [&](int64_t begin, int64_t end, float* out) {
    std::copy(m.row(begin), m.row(end), out);
  };
  TileResult result;
  try {
    result.bytes =
        stored_bytes(encode_tensor(format, rotation, {effort, {}}, m.rows, m.cols, read_rows, pool,
                                   &result.error, &result.norm, feedback, device));
  } catch (const Error& e) {
    result.refusal = e.reason();
  }
  return result;
}

inline void expect_same_tiles(detail::TileDevice& device, const std::string& name, const Matrix& m,
                              Effort effort = Effort::full,
                              const ErrorFeedback* feedback = nullptr) {
  const Format& format = test_format(name);
  ASSERT_TRUE(device.searches(format)) << name;
  const TileResult cpu = encode_tiles(format, m, effort, feedback, nullptr);
  const TileResult other = encode_tiles(format, m, effort, feedback, &device);
  EXPECT_EQ(other.refusal, cpu.refusal);
  ASSERT_EQ(other.bytes.size(), cpu.bytes.size());
  size_t different = 0;
  for (size_t i = 0; i < cpu.bytes.size(); ++i)
    different += cpu.bytes[i] != other.bytes[i];
  EXPECT_EQ(different, 0u) << name << " [" << m.rows << ", " << m.cols << "] of "
                           << cpu.bytes.size();
  EXPECT_EQ(other.error, cpu.error) << name;
  EXPECT_EQ(other.norm, cpu.norm) << name;
}

// Compares with the feedback of correlated activations.
inline void expect_same_fed_back(detail::TileDevice& device, const std::string& name,
                                 const Matrix& m, Effort effort = Effort::full) {
  const Format& format = test_format(name);
  ThreadPool pool(2);
  const InputMoments moments = moments_of(correlated_activations(400, m.cols, 7), m.cols, pool);
  const ErrorFeedback feedback(moments, {}, tile_rotation(format), padded_cols(format, m.cols),
                               pool);
  expect_same_tiles(device, name, m, effort, &feedback);
}

// Makes rows of zeros, of one huge value, of ties, of steps in size, and tiny ones.
inline Matrix odd_tiles(int64_t rows, int64_t cols) {
  Matrix m = normal_matrix(rows, cols, 9);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      float& v = m.values[static_cast<size_t>(r * cols + c)];
      switch (r % 7) {
        case 0:
          v = 0;
          break;
        case 1:
          v = c == 3 ? 1e30f : v;
          break;
        case 2:
          v = v > 0 ? 1.0f : -1.0f;
          break;
        case 3:
          v = std::ldexp(v, static_cast<int>(c / 16) * 4 - 20);
          break;
        case 4:
          v *= 1e-38f;
          break;
        case 5:
          v = 1;
          break;
        default:
          break;
      }
    }
  }
  return m;
}

}  // namespace walsh::testing_support
