#include "codec/feedback/error_feedback.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/checked.h"
#include "codec/feedback/cholesky.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// These constants were chosen by the error on other text than the measured one
// (docs/calibration.md).
constexpr double kRootShare = 0.4, kSquareShare = 0.3;
constexpr double kLeastDamping = 0.01, kHopelessDamping = 1e12;
constexpr double kLeastOutputDamping = 0.05;  // The error differs by 1 % between 0.03 and 0.3.
constexpr int64_t kRows = 32;                 // A piece of work has this many rows.

void rotate_rows(const std::function<void(float*)>& rotate, float* a, int64_t n, ThreadPool& pool) {
  pool.for_each(ceil_div(n, kRows), [&](int64_t piece) {
    for (int64_t i = piece * kRows; i < std::min(n, (piece + 1) * kRows); ++i)
      rotate(a + i * n);
  });
}

size_t squared(int64_t size) {
  return narrow<size_t>(
      checked_mul(static_cast<uint64_t>(size), static_cast<uint64_t>(size), "width"), "width");
}

}  // namespace

double calibration_damping(int64_t width, int64_t tokens) {
  const double ratio =
      static_cast<double>(width) / static_cast<double>(std::max<int64_t>(1, tokens));
  return std::max(kLeastDamping, kRootShare * std::sqrt(ratio) + kSquareShare * ratio * ratio);
}

ErrorFeedback::ErrorFeedback(int64_t size, double damping)
    : size_(size), damping_(damping), factor_(squared(size)) {}

ErrorFeedback::ErrorFeedback(const InputMoments& moments, std::span<const float> scales,
                             const Rotation& rotation, int64_t padded, ThreadPool& pool)
    : ErrorFeedback(padded, calibration_damping(moments.width, moments.tokens)) {
  if (rotation.kind == RotationKind::none) {
    fill(moments, scales, {}, pool);
  } else {
    const Rotator rotator(rotation, size_);
    fill(
        moments, scales, [&](float* row) { rotator.apply(row); }, pool);
  }
  if (factor(moments.width, kHopelessDamping, pool)) return;
  throw Error(ErrorCode::bad_input, "", "its activations on the calibration text overflow");
}

ErrorFeedback ErrorFeedback::of_outputs(const InputMoments& moments, std::span<const float> scales,
                                        const std::function<void(float*)>& rotate,
                                        ThreadPool& pool) {
  const double damping =
      std::max(kLeastOutputDamping, calibration_damping(moments.width, moments.tokens));
  ErrorFeedback result(moments.width, damping);
  result.fill(moments, scales, rotate, pool);
  if (result.factor(moments.width, damping, pool)) return result;
  throw Error(ErrorCode::bad_input, "",
              "the moments of its gradients are not positive semidefinite");
}

// Computes R S^-1 (mean of x x^T) S^-1 R^T into both triangles.
void ErrorFeedback::fill(const InputMoments& moments, std::span<const float> scales,
                         const std::function<void(float*)>& rotate, ThreadPool& pool) {
  const int64_t width = moments.width;
  const double share = 1.0 / static_cast<double>(std::max<int64_t>(1, moments.tokens));
  const auto inverse = [&](int64_t c) {
    return scales.empty() ? 1.0 : 1.0 / double{scales[static_cast<size_t>(c)]};
  };
  pool.for_each(ceil_div(width, kRows), [&](int64_t piece) {
    for (int64_t i = piece * kRows; i < std::min(width, (piece + 1) * kRows); ++i) {
      const double factor = share * inverse(i);
      for (int64_t j = i; j < width; ++j) {
        factor_[static_cast<size_t>(i * size_ + j)] = static_cast<float>(
            double{moments.sums[static_cast<size_t>(i * width + j)]} * factor * inverse(j));
      }
    }
  });
  detail::mirror(factor_.data(), size_, pool);
  if (!rotate) return;
  rotate_rows(rotate, factor_.data(), size_, pool);
  detail::transpose(factor_.data(), size_, pool);
  rotate_rows(rotate, factor_.data(), size_, pool);
}

bool ErrorFeedback::factor(int64_t width, double most, ThreadPool& pool) {
  double mean = 0;
  for (int64_t i = 0; i < size_; ++i)
    mean += double{factor_[static_cast<size_t>(i * size_ + i)]} / static_cast<double>(width);
  if (!std::isfinite(mean) || mean < 0) return false;
  // If the inputs are always zero, every rounding is as good as another, so any unit will do.
  if (!(mean > 0)) mean = 1;
  damping_ = detail::factor_damped(factor_.data(), size_, mean, damping_, most, pool);
  if (damping_ < 0) return false;
  pool.for_each(ceil_div(size_, kRows), [&](int64_t piece) {
    for (int64_t i = piece * kRows; i < std::min(size_, (piece + 1) * kRows); ++i)
      std::fill_n(factor_.data() + i * size_, i, 0.0f);
  });
  return true;
}

}  // namespace walsh
