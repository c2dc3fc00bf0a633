// Makes random coded tensors on host and device, for tests of GPU products.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "../random_halves.h"
#include "base/half.h"
#include "base/random.h"
#include "codec/format.h"
#include "codec/kernels.h"
#include "codec/tensor.h"
#include "cuda_buffers.h"
#include "kernels/cuda/gemm/gemm.h"

namespace walsh::cuda::test {

using walsh::test::random_halves;

// Returns whether every GPU product knows the format.
inline bool scalar_code(const Format& format) {
  return format.kind == CodeKind::scalar;
}

// Also knows product and trellis codes, which have no int8 tiles (int8_gemm).
inline bool gpu_code(const Format& format) {
  return format.passes > 0 && has_kernel(format, Kernel::gpu_products);
}

// Holds a tensor with random codes and scales, its memory, and its passes on the device.
struct RandomWeights {
  Tensor tensor;
  std::vector<std::vector<std::byte>> arrays;
  Matrix pass[2];

  RandomWeights(const Format& format, int64_t rows, int64_t cols, uint64_t seed) {
    Random random(seed);
    tensor.format = &format;
    tensor.rows = rows;
    tensor.cols = cols;
    arrays.reserve(8);
    for (int p = 0; p < format.passes; ++p) {
      const double size = p == 0 ? 1.0 : 0.1;  // a residual is smaller
      for (const PassField& field : pass_fields(format, p, rows, cols)) {
        const auto bytes = static_cast<size_t>(field.rows) * field.row_bytes;
        const auto halves = static_cast<int64_t>(bytes / 2);
        const std::string name = field.suffix;
        auto& array = arrays.emplace_back();
        if (name == "codes") {
          array.resize(bytes);
          for (std::byte& b : array)
            b = static_cast<std::byte>(random.next() & 0xff);
        } else if (name == "scales") {
          array = random_halves(halves, random, 0.01 * size, 0.1 * size);
        } else if (name == "offsets") {
          array = random_halves(halves, random, -0.01, 0.01);
        } else if (name == "sub_scales" || name == "col_scales") {
          array = random_halves(halves, random, 0.5, 1.5);
        } else {
          const auto entries = std::as_bytes(std::span(format.product.codebook, bytes));
          array.assign(entries.begin(), entries.end());
        }
        tensor.pass[p].*field.array = array;
      }
      tensor.rotation[p].kind =
          format.rotation_block != 0 ? RotationKind::hadamard : RotationKind::none;
      tensor.rotation[p].block = format.rotation_block != 0 ? format.rotation_block : 128;
      tensor.rotation[p].seed = static_cast<uint32_t>(seed * 7 + static_cast<uint64_t>(p));
    }
  }

  // Call this after the last change of tensor.rotation.
  void upload() {
    Uploader uploader;
    Buffer staging;
    for (int p = 0; p < tensor.format->passes; ++p) {
      pass[p] = upload_matrix(tensor, p, uploader, staging);
      uploader.synchronize();
    }
  }

  RowMatmul product() const {
    RowMatmul result;
    for (int p = 0; p < tensor.format->passes; ++p) {
      result.pass[p] = &pass[p];
      result.rotation[p] = tensor.rotation[p];
    }
    result.cols = padded_cols(*tensor.format, tensor.cols);
    return result;
  }

  // Returns all rows in the model's basis.
  std::vector<float> decoded() const {
    std::vector<float> out(static_cast<size_t>(tensor.rows * tensor.cols));
    decode_rows(tensor, 0, tensor.rows, out.data());
    return out;
  }
};

inline uint16_t round_to(DType type, float v) {
  return type == DType::bf16 ? f32_to_bf16(v) : f32_to_f16(v);
}
inline float widen(DType type, uint16_t h) {
  return type == DType::bf16 ? bf16_to_f32(h) : f16_to_f32(h);
}

// Holds m random rows of `cols` values in rows of `stride`, zero beyond; as the device has them and
// as floats [m][cols].
struct RandomRows {
  std::vector<float> values;
  Buffer buffer;
  Rows rows;

  RandomRows(int64_t m, int64_t cols, int64_t stride, DType type, uint64_t seed) {
    Random random(seed);
    std::vector<float> wide(static_cast<size_t>(m * stride));
    std::vector<uint16_t> narrow(wide.size());
    for (int64_t t = 0; t < m; ++t) {
      for (int64_t c = 0; c < cols; ++c) {
        float v = static_cast<float>(random.normal());
        const auto at = static_cast<size_t>(t * stride + c);
        if (type != DType::f32) {
          narrow[at] = round_to(type, v);
          v = widen(type, narrow[at]);
        }
        wide[at] = v;
        values.push_back(v);
      }
    }
    buffer = type == DType::f32 ? to_device(wide) : to_device(narrow);
    rows = {buffer.as(), stride, type, Basis::original};
  }
};

// Compares y of a product with what it should be: sums in double precision of `w` [rows][cols] and
// x.
struct Outcome {
  double worst = 0;  // largest error over its allowance
  std::string where;
};

inline Outcome compare(const std::vector<float>& y, int64_t ldy, const std::vector<float>& w,
                       const std::vector<float>& x, int64_t rows, int64_t cols, int64_t m,
                       const std::vector<float>& bias, float before, double relative) {
  Outcome outcome;
  for (int64_t t = 0; t < m; ++t) {
    for (int64_t row = 0; row < rows; ++row) {
      double sum = before + (bias.empty() ? 0.0 : bias[static_cast<size_t>(row)]), squares = 0;
      double sizes = std::abs(sum);
      for (int64_t c = 0; c < cols; ++c) {
        const double p = static_cast<double>(w[static_cast<size_t>(row * cols + c)]) *
                         x[static_cast<size_t>(t * cols + c)];
        sum += p, squares += p * p, sizes += std::abs(p);
      }
      // Roundings of weights are independent; those of the float sum are bounded by its parts.
      const double allowed = 6 * relative * std::sqrt(squares) + 2e-6 * sizes + 1e-30;
      const double error = std::abs(y[static_cast<size_t>(t * ldy + row)] - sum) / allowed;
      if (error > outcome.worst || std::isnan(error)) {
        outcome.worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
        outcome.where = "vector " + std::to_string(t) + " row " + std::to_string(row);
      }
    }
  }
  return outcome;
}

}  // namespace walsh::cuda::test
