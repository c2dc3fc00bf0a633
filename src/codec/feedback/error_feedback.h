// Says what an error in one column of a rotated matrix does to the output, and how the columns
// behind it can make up for it (docs/calibration.md).
//
// Source: error feedback of a Hessian's triangular factor is GPTQ's (Frantar et al. 2022) and LDLQ
// (QuIP, Chee et al. 2023); feedback between blocks of columns follows QTIP (Tseng et al. 2024).
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/aligned.h"
#include "base/thread_pool.h"
#include "codec/feedback/input_statistics.h"
#include "rotate/rotation.h"

namespace walsh {

// Returns the share of the mean diagonal that is added to the diagonal of the moments; the fewer
// tokens were measured, the larger it is: 0.4 sqrt(r) + 0.3 r^2 with r = width / tokens, at least
// 0.01. On inputs of 512 channels that is 0.1 at 8192 tokens and 0.03 at 100,000.
double calibration_damping(int64_t width, int64_t tokens);

// Holds the moments H of a balanced, rotated and padded activation, damped, as H = C C^T with an
// upper triangular C. The error that errors e[size] of a row cause is |e C|^2; column j of e C
// depends on the errors of the columns up to j only, so a column is best rounded from
//   x_j + (sum over i < j of e_i C_ij) / C_jj,
// and a block J of columns from x_J + (sum over i before J of e_i C_iJ) C_JJ^-1.
class ErrorFeedback {
 public:
  // Activations are divided by scales[width] (or empty) before the rotation, which pads to `padded`
  // columns. Throws limit if the memory cannot be had.
  ErrorFeedback(const InputMoments& moments, std::span<const float> scales,
                const Rotation& rotation, int64_t padded, ThreadPool& pool);

  // Makes the feedback over the outputs: errors of a column e[size] of the matrix cause e^T H e,
  // where H is the moments of the gradients there. The gradients are divided by scales[size] (or
  // empty), then rotated by `rotate` (or empty), just as the rows of the matrix are multiplied and
  // rotated. Throws bad_input with an empty `where` for moments that are not positive semidefinite,
  // and limit.
  static ErrorFeedback of_outputs(const InputMoments& moments, std::span<const float> scales,
                                  const std::function<void(float*)>& rotate, ThreadPool& pool);

  int64_t size() const { return size_; }
  // Returns C_ij for j in [0, size); 0 for j < i.
  const float* row(int64_t i) const { return factor_.data() + i * size_; }
  // Returns the relative damping that was needed for a positive definite matrix.
  double damping() const { return damping_; }

 private:
  ErrorFeedback(int64_t size, double damping);
  void fill(const InputMoments& moments, std::span<const float> scales,
            const std::function<void(float*)>& rotate, ThreadPool& pool);
  // Returns false where `most` damping is not enough.
  bool factor(int64_t width, double most, ThreadPool& pool);

  int64_t size_;
  double damping_;
  AlignedArray<float> factor_;  // [size][size]
};

}  // namespace walsh
