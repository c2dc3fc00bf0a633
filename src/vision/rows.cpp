#include "vision/rows.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "codec/format.h"

namespace walsh::vision {
namespace {

constexpr int64_t kPiecesPerThread = 4;

float gelu(float x) {
  return 0.5F * x * (1 + std::erf(x * static_cast<float>(M_SQRT1_2)));
}

float gelu_tanh(float x) {
  const float inner = static_cast<float>(M_2_SQRTPI * M_SQRT1_2) * (x + 0.044715F * x * x * x);
  return 0.5F * x * (1 + std::tanh(inner));
}

}  // namespace

void multiply(const TowerMatrix& w, const Rows& x, float* y, int64_t ldy, ThreadPool& pool) {
  const Ops& kernels = ops();
  const int64_t rows = w.weights.rows, m = x.count();
  const int64_t units = (rows + kPanelRows - 1) / kPanelRows;
  const int64_t pieces = std::min(units, pool.size() * kPiecesPerThread);
  pool.for_each(pieces, [&](int64_t piece) {
    const int64_t begin = units * piece / pieces * kPanelRows;
    const int64_t end = std::min(units * (piece + 1) / pieces * kPanelRows, rows);
    kernels.matmul_dense(w.weights.format->dtype, w.weights.data.data(), w.weights.cols,
                         x.values.data(), x.width, m, y, ldy, begin, end);
    if (w.bias.empty()) return;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t r = begin; r < end; ++r)
        y[i * ldy + r] += w.bias[static_cast<size_t>(r)];
    }
  });
}

void layer_norm(const float* x, std::span<const float> gain, std::span<const float> bias, float eps,
                float* out) {
  const auto n = static_cast<double>(gain.size());
  double sum = 0, squares = 0;
  for (size_t i = 0; i < gain.size(); ++i)
    sum += x[i];
  const auto mean = static_cast<float>(sum / n);
  for (size_t i = 0; i < gain.size(); ++i)
    squares += static_cast<double>(x[i] - mean) * (x[i] - mean);
  const auto factor = static_cast<float>(1 / std::sqrt(squares / n + eps));
  for (size_t i = 0; i < gain.size(); ++i)
    out[i] = (x[i] - mean) * factor * gain[i] + bias[i];
}

void activate(Activation function, float* x, const float* up, int64_t n) {
  if (function == Activation::silu && up != nullptr) return ops().silu_mul(x, up, n, x);
  if (function == Activation::gelu_tanh && up != nullptr) return ops().gelu_mul(x, up, n, x);
  for (int64_t i = 0; i < n; ++i) {
    const float value = x[i];
    switch (function) {
      case Activation::silu:
        x[i] = value / (1 + std::exp(-value));
        break;
      case Activation::gelu:
        x[i] = gelu(value);
        break;
      case Activation::gelu_tanh:
        x[i] = gelu_tanh(value);
        break;
    }
    if (up != nullptr) x[i] *= up[i];
  }
}

Rows merge(const Rows& x, int64_t side, bool by_channel) {
  Rows result(x.rows / side, x.columns / side, x.width * side * side);
  for (int64_t r = 0; r < result.rows; ++r) {
    for (int64_t c = 0; c < result.columns; ++c) {
      float* to = result.row(r * result.columns + c);
      for (int64_t part = 0; part < side * side; ++part) {
        const float* from = x.row((r * side + part / side) * x.columns + c * side + part % side);
        const int64_t step = by_channel ? side * side : 1;
        const int64_t first = by_channel ? part : part * x.width;
        for (int64_t i = 0; i < x.width; ++i)
          to[first + i * step] = from[i];
      }
    }
  }
  return result;
}

Rows average(const Rows& x, int64_t side) {
  Rows result(x.rows / side, x.columns / side, x.width);
  const float share = 1 / static_cast<float>(side * side);
  for (int64_t r = 0; r < result.rows * side; ++r) {
    for (int64_t c = 0; c < result.columns * side; ++c) {
      const float* from = x.row(r * x.columns + c);
      float* to = result.row(r / side * result.columns + c / side);
      for (int64_t i = 0; i < x.width; ++i)
        to[i] += from[i] * share;
    }
  }
  return result;
}

}  // namespace walsh::vision
