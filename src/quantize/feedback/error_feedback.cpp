#include "quantize/feedback/error_feedback.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/checked.h"
#include "quantize/feedback/cholesky.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// Of calibration_damping: chosen by the error on other text (docs/calibration.md).
constexpr double kRootShare = 0.4, kSquareShare = 0.3;
constexpr double kLeastDamping = 0.01, kHopelessDamping = 1e12;
constexpr int64_t kRows = 32;  // of one piece of work

void rotate_rows(const Rotator& rotator, float* a, int64_t n, ThreadPool& pool) {
  pool.for_each((n + kRows - 1) / kRows, [&](int64_t piece) {
    for (int64_t i = piece * kRows; i < std::min(n, (piece + 1) * kRows); ++i)
      rotator.apply(a + i * n);
  });
}

// The upper triangle below the diagonal.
void mirror(float* a, int64_t n, ThreadPool& pool) {
  pool.for_each((n + kRows - 1) / kRows, [&](int64_t piece) {
    for (int64_t i = piece * kRows; i < std::min(n, (piece + 1) * kRows); ++i) {
      for (int64_t j = 0; j < i; ++j)
        a[i * n + j] = a[j * n + i];
    }
  });
}

}  // namespace

double calibration_damping(int64_t width, int64_t tokens) {
  const double ratio =
      static_cast<double>(width) / static_cast<double>(std::max<int64_t>(1, tokens));
  return std::max(kLeastDamping, kRootShare * std::sqrt(ratio) + kSquareShare * ratio * ratio);
}

ErrorFeedback::ErrorFeedback(const InputMoments& moments, std::span<const float> scales,
                             const Rotation& rotation, int64_t padded, ThreadPool& pool)
    : size_(padded),
      damping_(calibration_damping(moments.width, moments.tokens)),
      factor_(narrow<size_t>(
          checked_mul(static_cast<uint64_t>(padded), static_cast<uint64_t>(padded), "width"),
          "width")) {
  fill(moments, scales, rotation, pool);
  std::vector<float> diagonal;
  double mean = 0;
  for (int64_t i = 0; i < size_; ++i) {
    diagonal.push_back(factor_[static_cast<size_t>(i * size_ + i)]);
    mean += double{diagonal.back()} / static_cast<double>(moments.width);
  }
  if (!std::isfinite(mean)) {
    throw Error(ErrorCode::bad_input, "", "its activations on the calibration text overflow");
  }
  // An input that is always zero: every rounding is as good as another.
  if (!(mean > 0)) mean = 1;
  while (!factor(mean, diagonal, pool)) {
    damping_ *= 4;
    if (damping_ < kHopelessDamping) continue;
    throw Error(ErrorCode::bad_input, "", "its activations on the calibration text overflow");
  }
  pool.for_each((size_ + kRows - 1) / kRows, [&](int64_t piece) {
    for (int64_t i = piece * kRows; i < std::min(size_, (piece + 1) * kRows); ++i)
      std::fill_n(factor_.data() + i * size_, i, 0.0f);
  });
}

// R S^-1 (mean of x x^T) S^-1 R^T, both triangles.
void ErrorFeedback::fill(const InputMoments& moments, std::span<const float> scales,
                         const Rotation& rotation, ThreadPool& pool) {
  const int64_t width = moments.width;
  const double share = 1.0 / static_cast<double>(std::max<int64_t>(1, moments.tokens));
  const auto inverse = [&](int64_t c) {
    return scales.empty() ? 1.0 : 1.0 / double{scales[static_cast<size_t>(c)]};
  };
  pool.for_each((width + kRows - 1) / kRows, [&](int64_t piece) {
    for (int64_t i = piece * kRows; i < std::min(width, (piece + 1) * kRows); ++i) {
      const double factor = share * inverse(i);
      for (int64_t j = i; j < width; ++j) {
        factor_[static_cast<size_t>(i * size_ + j)] = static_cast<float>(
            double{moments.sums[static_cast<size_t>(i * width + j)]} * factor * inverse(j));
      }
    }
  });
  mirror(factor_.data(), size_, pool);
  if (rotation.kind == RotationKind::none) return;
  const Rotator rotator(rotation, size_);
  rotate_rows(rotator, factor_.data(), size_, pool);
  detail::transpose(factor_.data(), size_, pool);
  rotate_rows(rotator, factor_.data(), size_, pool);
}

// Factors the upper triangle. On failure it is restored from the lower one, which stays as it is.
bool ErrorFeedback::factor(double mean, std::span<const float> diagonal, ThreadPool& pool) {
  for (int64_t i = 0; i < size_; ++i) {
    factor_[static_cast<size_t>(i * size_ + i)] =
        static_cast<float>(double{diagonal[static_cast<size_t>(i)]} + damping_ * mean);
  }
  if (detail::factor_upper(factor_.data(), size_, pool)) return true;
  detail::transpose(factor_.data(), size_, pool);
  mirror(factor_.data(), size_, pool);
  return false;
}

}  // namespace walsh
