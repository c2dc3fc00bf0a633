// Holds the matrices of a model in GPU memory.
#pragma once

#include <vector>

#include "kernels/cuda/weights/matrix.h"
#include "model/model.h"

namespace walsh {

// A matrix is here as the GPU multiplies it: either as passes, or uncoded.
struct CudaWeights : DeviceWeights {
  std::vector<cuda::Matrix> pass;
  cuda::DenseMatrix dense;
  Rotation rotation[2];  // of the passes
  int64_t padded = 0;    // row length in storage
  cuda::Buffer bias;     // float [rows], or empty; its memory is counted by the Linear

  uint64_t bytes() const override;
};

// A table that tokens look up is here as it is stored, so that single rows can be dequantized.
struct CudaEmbedding : DeviceWeights {
  const Format* format = nullptr;
  int64_t rows = 0, cols = 0;
  Rotation rotation[2];
  // The arrays have the order of array_specs. A product code always has its codebook.
  std::vector<cuda::Buffer> arrays;

  uint64_t bytes() const override;
};

inline bool is_rotated(const CudaWeights& weights) {
  return !weights.pass.empty() && weights.rotation[0].kind != RotationKind::none;
}

inline const CudaWeights& cuda_weights(const Linear& linear) {
  return static_cast<const CudaWeights&>(*linear.device_weights);
}

// Returns whether the layer is an uncoded matrix without bias, as routers and decays are in most
// families.
inline bool is_dense_without_bias(const Linear& linear) {
  return linear.is_dense() && cuda_weights(linear).bias.empty();
}

}  // namespace walsh
