// Encodes an in-memory matrix with a format's default rotation, for tests.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "codec/encode/encode_tensor.h"

namespace walsh::testing_support {

struct Matrix {
  int64_t rows = 0, cols = 0;
  std::vector<float> values;

  const float* row(int64_t r) const { return values.data() + r * cols; }
};

inline Matrix normal_matrix(int64_t rows, int64_t cols, uint64_t seed = 1) {
  Random random(seed);
  Matrix m{rows, cols, std::vector<float>(static_cast<size_t>(rows * cols))};
  for (float& v : m.values)
    v = static_cast<float>(random.normal());
  return m;
}

struct Encoded {
  Tensor tensor;
  double squared_error = 0, squared_norm = 0;

  double nmse() const { return squared_error / squared_norm; }
};

inline Encoded encode(const Format& format, const Matrix& m, const EncodeOptions& options = {},
                      int threads = 1) {
  Rotation rotation[2];
  for (int pass = 0; pass < 2; ++pass) {
    rotation[pass].kind = format.rotation_block == 0 ? RotationKind::none : RotationKind::hadamard;
    rotation[pass].block = format.rotation_block;
    rotation[pass].seed = rotation_seed(42, 0u, pass);
  }
  ThreadPool pool(threads);
  const auto read_rows = [&](int64_t begin, int64_t end, float* out) {
    std::copy(m.row(begin), m.row(end), out);
  };
  Encoded result;
  result.tensor = encode_tensor(format, rotation, options, m.rows, m.cols, read_rows, pool,
                                &result.squared_error, &result.squared_norm);
  return result;
}

inline std::vector<float> decoded(const Tensor& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.rows * tensor.cols));
  decode_rows(tensor, 0, tensor.rows, out.data());
  return out;
}

// Returns all stored arrays one after the other.
inline std::vector<std::byte> stored_bytes(const Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.data.begin(), tensor.data.end());
  for (const PassArrays& pass : tensor.pass) {
    for (const auto& array :
         {pass.codes, pass.scales, pass.offsets, pass.sub_scales, pass.col_scales, pass.codebook})
      bytes.insert(bytes.end(), array.begin(), array.end());
  }
  return bytes;
}

// Returns the group scales (or another fp16 array) as bit patterns.
inline std::vector<uint16_t> halves(std::span<const std::byte> array) {
  std::vector<uint16_t> out(array.size() / 2);
  if (!array.empty()) std::memcpy(out.data(), array.data(), array.size());
  return out;
}

}  // namespace walsh::testing_support
