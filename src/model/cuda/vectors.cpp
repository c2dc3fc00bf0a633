#include "model/cuda/vectors.h"

#include "base/checked.h"

namespace walsh {
namespace {

std::vector<cuda::Buffer> make_buffers(const LayerSteps& layer) {
  std::vector<cuda::Buffer> all;
  for (const VectorDesc& vector : layer.vectors)
    all.emplace_back(
        checked_mul(static_cast<uint64_t>(vector.size()), sizeof(float), "vectors of a layer"));
  return all;
}

}  // namespace

void upload_values(const std::vector<float>& values, const cuda::Buffer& to,
                   cuda::Uploader& uploader) {
  if (values.size() * sizeof(float) != to.bytes())
    throw Error(ErrorCode::internal, "GPU constants", "sizes differ from those that were planned");
  uploader.copy(to.as(), values.data(), to.bytes());
}

CudaVectors::CudaVectors(const ModelSteps& steps) : head_(make_buffers(steps.head)) {
  for (const LayerSteps& layer : steps.layers)
    layers_.push_back(make_buffers(layer));
}

const cuda::Buffer& CudaVectors::buffer(int layer, int index) const {
  const auto& own = layer < 0 ? head_ : layers_[static_cast<size_t>(layer)];
  return own[static_cast<size_t>(index)];
}

const float* CudaVectors::at(int layer, int index) const {
  return index < 0 ? nullptr : buffer(layer, index).as<const float>();
}

void CudaVectors::upload(const Model& model, cuda::Uploader& uploader) const {
  for (size_t i = 0; i < layers_.size(); ++i)
    for (size_t v = 0; v < layers_[i].size(); ++v)
      upload_values(model.layers[i].vectors[v], layers_[i][v], uploader);
  for (size_t v = 0; v < head_.size(); ++v)
    upload_values(model.head_vectors[v], head_[v], uploader);
}

void CudaVectors::upload(int layer, int index, const std::vector<float>& values,
                         cuda::Uploader& uploader) const {
  upload_values(values, buffer(layer, index), uploader);
}

}  // namespace walsh
