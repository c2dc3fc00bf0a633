#include "vision/tower_tensors.h"

#include <utility>

#include "codec/format.h"
#include "walsh/error.h"

namespace walsh::vision {
namespace {

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape)
    text += (text.empty() ? "[" : ", ") + std::to_string(size);
  return text + "]";
}

}  // namespace

const TensorInfo& TowerTensors::find(const std::string& name,
                                     const std::vector<int64_t>& shape) const {
  for (const std::string& prefix : prefixes_) {
    const TensorInfo* info = checkpoint_->find(prefix + name);
    if (info == nullptr) continue;
    if (info->shape != shape) {
      throw Error(ErrorCode::bad_input, info->where(),
                  "shape is " + text_of(info->shape) + ", expected " + text_of(shape));
    }
    return *info;
  }
  throw Error(ErrorCode::bad_input, checkpoint_->folder() + ": tensor " + prefixes_.front() + name,
              "missing, but the vision tower of the config has it");
}

TowerMatrix TowerTensors::matrix(const std::string& name, int64_t rows, int64_t cols,
                                 bool bias) const {
  const TensorInfo& info = find(name + ".weight", {rows, cols});
  TowerMatrix matrix;
  matrix.weights.format = &dense_format(info.dtype());
  matrix.weights.rows = rows;
  matrix.weights.cols = cols;
  matrix.weights.data = checkpoint_->data(info);
  matrix.weights.owner = checkpoint_;
  if (bias) matrix.bias = vector(name + ".bias", rows);
  return matrix;
}

std::vector<float> TowerTensors::vector(const std::string& name, int64_t size) const {
  return values(name, {size});
}

std::vector<float> TowerTensors::values(const std::string& name,
                                        const std::vector<int64_t>& shape) const {
  const TensorInfo& info = find(name, shape);
  Tensor tensor;
  tensor.format = &dense_format(info.dtype());
  tensor.rows = 1;
  tensor.cols = info.elements();
  tensor.data = checkpoint_->data(info);
  std::vector<float> result(static_cast<size_t>(tensor.cols));
  decode_rows(tensor, 0, 1, result.data());
  return result;
}

TowerMatrix float_matrix(std::vector<float> values, int64_t rows, int64_t cols) {
  const auto owner = std::make_shared<const std::vector<float>>(std::move(values));
  TowerMatrix matrix;
  matrix.weights.format = &dense_format(DType::f32);
  matrix.weights.rows = rows;
  matrix.weights.cols = cols;
  matrix.weights.data = std::as_bytes(std::span(*owner));
  matrix.weights.owner = owner;
  return matrix;
}

}  // namespace walsh::vision
