// Reads the tensors of a vision tower from a checkpoint.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codec/tensor.h"
#include "io/checkpoint.h"

namespace walsh::vision {

// Holds a matrix with its bias, in place as the checkpoint has it.
struct TowerMatrix {
  Tensor weights;
  std::vector<float> bias;  // its shape is [rows], or it is empty
};

class TowerTensors {
 public:
  TowerTensors(std::shared_ptr<const Checkpoint> checkpoint, std::vector<std::string> prefixes)
      : checkpoint_(std::move(checkpoint)), prefixes_(std::move(prefixes)) {}

  // These throw bad_input for a tensor that is missing, has another shape or is no float.
  TowerMatrix matrix(const std::string& name, int64_t rows, int64_t cols, bool bias) const;
  std::vector<float> vector(const std::string& name, int64_t size) const;
  // Returns the values of a tensor of this shape as float32.
  std::vector<float> values(const std::string& name, const std::vector<int64_t>& shape) const;

 private:
  const TensorInfo& find(const std::string& name, const std::vector<int64_t>& shape) const;

  std::shared_ptr<const Checkpoint> checkpoint_;
  std::vector<std::string> prefixes_;
};

// Returns a matrix that owns its memory, from float32 values.
TowerMatrix float_matrix(std::vector<float> values, int64_t rows, int64_t cols);

}  // namespace walsh::vision
