// Holds the vectors of all layers in GPU memory: gains and whatever else a layer has besides its
// matrices and their biases.
#pragma once

#include <vector>

#include "base/cuda/device.h"
#include "model/model.h"

namespace walsh {

class CudaVectors {
 public:
  // Allocates memory for the vectors that the steps name, with the same indices.
  explicit CudaVectors(const ModelSteps& steps);

  // Returns a vector of a layer, or of the head (layer -1); null for vector -1.
  const float* at(int layer, int index) const;
  // Uploads all values of the model and fills constants.
  void upload(const Model& model, cuda::Uploader& uploader) const;
  // Replaces the values of one vector.
  void upload(int layer, int index, const std::vector<float>& values,
              cuda::Uploader& uploader) const;

 private:
  const cuda::Buffer& buffer(int layer, int index) const;

  std::vector<std::vector<cuda::Buffer>> layers_;
  std::vector<cuda::Buffer> head_;
};

// Copies values to a buffer that was made for as many.
void upload_values(const std::vector<float>& values, const cuda::Buffer& to,
                   cuda::Uploader& uploader);

}  // namespace walsh
