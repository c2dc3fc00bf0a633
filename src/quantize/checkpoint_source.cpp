#include "quantize/checkpoint_source.h"

#include "walsh/error.h"

namespace walsh {

CheckpointSource::CheckpointSource(Checkpoint checkpoint)
    : checkpoint_(std::make_shared<Checkpoint>(std::move(checkpoint))) {}

bool CheckpointSource::contains(const std::string& name) const {
  return checkpoint_->find(name) != nullptr;
}

std::vector<std::string> CheckpointSource::names() const {
  std::vector<std::string> result;
  for (const TensorInfo& info : checkpoint_->tensors())
    result.push_back(info.name);
  return result;
}

const TensorInfo& CheckpointSource::find(const std::string& name) const {
  if (const TensorInfo* info = checkpoint_->find(name)) return *info;
  throw Error(ErrorCode::bad_input, path() + ": tensor " + name,
              "the checkpoint lacks this tensor");
}

const Format& CheckpointSource::format_of(const std::string& name) const {
  return dense_format(find(name).dtype());
}

Tensor CheckpointSource::load(const std::string& name) {
  const TensorInfo& info = find(name);
  const auto& shape = info.shape;
  if ((shape.size() != 1 && shape.size() != 2) || info.elements() == 0) {
    throw Error(ErrorCode::bad_input, info.where(),
                "rank " + std::to_string(shape.size()) + " with " +
                    std::to_string(info.elements()) +
                    " elements, expected a vector or a matrix that is not empty");
  }
  Tensor tensor;
  tensor.format = &dense_format(info.dtype());
  tensor.rows = shape.size() == 2 ? shape[0] : 1;
  tensor.cols = shape.back();
  tensor.data = checkpoint_->data(info);
  tensor.owner = checkpoint_;
  return tensor;
}

void CheckpointSource::release(const std::string& name) {
  if (const TensorInfo* info = checkpoint_->find(name)) checkpoint_->drop(*info);
}

}  // namespace walsh
