// Folds a rotation into the residual stream: one orthogonal matrix Q for the whole model is applied
// to the weights offline, so that the activations between the blocks are rotated without any work
// at run time.
//
//   embedding E Q^T                     entries (q, k, v, gate, up, head)  W diag(gain) Q^T
//   exits (o, down) Q W, biases Q b     norms                             gain 1
//   v  H W per key-value head           o  W H^T per query head of that key-value head
//
// An RMSNorm without gain commutes with Q, and attention mixes values only within a head, so every
// nonlinear function sees what it always saw. The input of down keeps its rotation at run time. The
// head gets the final norm's gain and is a tensor of its own, even if the checkpoint ties it to the
// embedding. The idea is that of QuaRot (Ashkboos et al. 2024) and SpinQuant (Liu et al. 2024).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "arch/plan.h"
#include "base/thread_pool.h"
#include "codec/weight_source.h"

namespace walsh {

// Returns the plan of the folded model, which is that of the checkpoint with a head of its own.
// Throws usage naming `where` and the reason if the model's residual stream cannot be rotated.
ModelPlan folded_plan(ModelPlan plan, const std::string& where);

// Makes the dense tensors of the folded model, one at a time.
class ResidualFold {
 public:
  // `fold` has the recipe's seed, from which those of all bases follow. `plan` (the checkpoint's or
  // folded_plan's), `checkpoint` and `pool` outlive this object.
  ResidualFold(const ModelPlan& plan, const Rotation& fold, WeightSource& checkpoint,
               ThreadPool& pool);

  // Returns whether the fold changes the tensor.
  bool contains(const std::string& name) const;
  // Returns whether the activation that a matrix reads (or the row of the embedding) stands in a
  // rotated basis already.
  bool input_rotated(const std::string& name) const;
  // Returns the function x <- R x by which the fold changes an activation x[width] that a matrix
  // reads, after a norm without its gain if there is one. It is empty if the activation stays as
  // it is. Several threads may call the function, and it outlives this object. Throws bad_input for
  // a width that does not fit.
  std::function<void(float* x)> input_rotation(const std::string& name, int64_t width) const;
  // Returns the function by which the fold changes the outputs y[rows] of a matrix.
  std::function<void(float* y)> output_rotation(const std::string& name, int64_t rows) const;
  // Returns the tensor of the checkpoint from which `name` is made. Both have the same shape.
  const std::string& origin(const std::string& name) const;

  // Returns a folded tensor as f32, and others as they are. It needs memory for that one tensor.
  // Throws bad_input naming file and tensor for NaN, infinity, values that overflow and shapes that
  // do not fit.
  Tensor load(const std::string& name) const;

 private:
  std::vector<float> gain(const FoldedTensor& folded, int64_t cols) const;
  Tensor fold(const FoldedTensor& folded) const;

  const ResidualPlan& plan_;
  float gain_offset_;  // ModelPlan explains it.
  Rotation rotation_;
  WeightSource& checkpoint_;
  ThreadPool& pool_;
  std::map<std::string, const FoldedTensor*> tensors_;
};

// Returns R W in f32, for a matrix whose output is rotated back at run time (two-sided rotation).
// Throws bad_input with an empty `where` as ResidualFold::load.
Tensor rotate_outputs(const Tensor& matrix, const Rotation& rotation, ThreadPool& pool);
// Returns the rotation of the outputs of the matrices that read an activation. `fold` has the
// meaning that it has for ResidualFold.
Rotation rotation_of_outputs(const Rotation& fold, std::string_view activation);

}  // namespace walsh
