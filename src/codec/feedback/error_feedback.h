// Computes what an error in one column of a rotated matrix does to the output, and how later
// columns can make up for it (docs/calibration.md).
//
// Source: GPTQ (Frantar et al. 2022) and LDLQ (QuIP, Chee et al. 2023) feed errors back by a
// triangular factor of the Hessian; feedback between blocks of columns follows QTIP (Tseng et al.
// 2024).
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/aligned.h"
#include "base/thread_pool.h"
#include "codec/feedback/input_statistics.h"
#include "rotate/rotation.h"

namespace walsh {

// Returns which share of the mean diagonal is added to the diagonal of the moments. It is larger
// the fewer tokens were measured: 0.4 sqrt(r) + 0.3 r^2 with r = width / tokens, but at least 0.01.
// For inputs of 512 channels that is 0.1 at 8192 tokens and 0.03 at 100,000.
double calibration_damping(int64_t width, int64_t tokens);

// Holds the moments H of a balanced, rotated and padded activation, damped, as H = C C^T with an
// upper triangular C. The error that errors e[size] of a row cause is |e C|^2; column j of e C
// depends on the errors of the columns up to j only, so a column is best rounded from
//   x_j + (sum over i < j of e_i C_ij) / C_jj,
// and a block J of columns from x_J + (sum over i before J of e_i C_iJ) C_JJ^-1.
class ErrorFeedback {
 public:
  // `scales` is [width] or empty; activations are divided by it before the rotation, which pads to
  // `padded` columns. Throws limit if there is not enough memory.
  ErrorFeedback(const InputMoments& moments, std::span<const float> scales,
                const Rotation& rotation, int64_t padded, ThreadPool& pool);

  // Makes the feedback over outputs. The errors e[size] of a column of the matrix cause e^T H e,
  // where H holds the moments of the gradients there. Like the rows of the matrix, gradients are
  // scaled, here divided by scales[size] (or empty), and rotated by `rotate` (or empty). Throws
  // bad_input with an empty `where` for moments that are not positive semidefinite, and limit if
  // there is not enough memory.
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
  // Returns false if even `most` damping is not enough.
  bool factor(int64_t width, double most, ThreadPool& pool);

  int64_t size_;
  double damping_;
  AlignedArray<float> factor_;  // Its shape is [size][size].
};

}  // namespace walsh
