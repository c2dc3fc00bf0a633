// Holds the matrices of a model in GPU memory.
#pragma once

#include <vector>

#include "kernels/cuda/weights/matrix.h"
#include "model/model.h"

namespace walsh {

// Holds a matrix as the GPU multiplies it, which is either coded passes or plain values.
struct CudaWeights : DeviceWeights {
  std::vector<cuda::Matrix> pass;
  cuda::DenseMatrix dense;
  Rotation rotation[2];  // Each pass has one.
  int64_t padded = 0;    // A stored row has this many columns.
  // It has the shape [rows], float, or is empty. The Linear counts its memory.
  cuda::Buffer bias;

  uint64_t bytes() const override;
};

// Holds a table that tokens look up, stored as in the file so that single rows can be dequantized.
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

// Returns whether the matrix is plain and has no bias, as routers and decays are in most families.
inline bool is_dense_without_bias(const Linear& linear) {
  return linear.is_dense() && cuda_weights(linear).bias.empty();
}

}  // namespace walsh
