// Computes a vision tower and its projector on the CPU.
#pragma once

#include <memory>
#include <vector>

#include "vision/rows.h"
#include "vision/tower_desc.h"
#include "vision/tower_tensors.h"

namespace walsh::vision {

class Tower {
 public:
  // Throws bad_input for tensors that are missing or have other shapes.
  Tower(const TowerDesc& desc, std::shared_ptr<const Checkpoint> checkpoint);

  // Returns the rows that stand in the prompt. Each has the values of the last layer, and after
  // them those of the branches.
  Rows run(const Rows& patches, ThreadPool& pool) const;
  // Returns how many patches become a row.
  int64_t patches_per_row() const;

 private:
  struct Norm {
    std::vector<float> gain, bias;
    float eps = 0;
  };
  struct Layer {
    Norm norm1, norm2;
    std::vector<TowerMatrix> qkv;  // there is one matrix, or there are three
    TowerMatrix out, gate, up, down;
  };
  struct StepWeights {
    Norm norm;
    TowerMatrix matrix;
  };

  Norm read_norm(const TowerTensors& tensors, const std::string& name, bool rms, int64_t width,
                 float eps) const;
  TowerMatrix read_patches(const TowerTensors& tensors) const;
  Layer read_layer(const TowerTensors& tensors, int64_t index) const;
  void read_steps(const TowerTensors& tensors, const std::vector<RowStep>& steps, int64_t width,
                  std::vector<StepWeights>& weights) const;
  void normalize(const Norm& norm, const Rows& x, Rows& out, ThreadPool& pool) const;
  void run_layer(const Layer& layer, Rows& x, std::span<const float> angles,
                 ThreadPool& pool) const;
  void feed_forward(const Layer& layer, const Rows& input, Rows& x, ThreadPool& pool) const;
  Rows run_steps(const std::vector<RowStep>& steps, const std::vector<StepWeights>& weights, Rows x,
                 ThreadPool& pool) const;
  void add_positions(Rows& x) const;
  std::vector<float> find_angles(const Rows& x) const;

  TowerDesc desc_;
  TowerMatrix patches_;
  std::vector<float> table_;  // its shape is [table_side^2][width]
  std::vector<Layer> layers_;
  std::vector<StepWeights> before_, after_;
  std::vector<std::vector<StepWeights>> branches_;
};

}  // namespace walsh::vision
