#include "api/device_operator.h"

#include <algorithm>
#include <vector>

#include "base/checked.h"
#include "base/cuda/memory_pool.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/rows/foreign_rows.h"
#include "kernels/cuda/weights/dequantize.h"

namespace walsh {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{2} << 20;  // of pinned memory for copies

uint64_t lent_bytes(int64_t bytes) {
  return static_cast<uint64_t>(round_up(bytes, static_cast<int64_t>(cuda::MemoryPool::kAlignment)));
}

}  // namespace

struct DeviceOperator::Impl {
  int device = 0;
  LayerForm form;
  int64_t padded = 0;  // stored columns
  std::vector<cuda::Matrix> pass;

  // Columns per scale of the int8 inputs of a pass.
  int group(size_t p) const {
    const bool small = form.rotation[p].kind == RotationKind::none &&
                       cuda::has_small_groups(*form.format, static_cast<int>(p));
    return small ? kPlainGroup : kActivationGroup;
  }
  int planes() const { return form.format->activation_planes; }
  int64_t quantized_cols() const { return round_up(padded, cuda::kPaddedColumns); }
};

DeviceOperator::DeviceOperator(const LinearOperator& layer, int device) {
  refuse_unsupported(layer.form(), device);
  cuda::use_device(device);
  auto impl = std::make_unique<Impl>();
  impl->device = device;
  impl->form = layer.form();
  impl->padded = walsh::padded_cols(*impl->form.format, impl->form.cols);
  const std::vector<std::vector<std::byte>> arrays = layer.arrays();
  const std::vector<std::span<const std::byte>> spans(arrays.begin(), arrays.end());
  const Tensor stored = stored_tensor(impl->form, spans);
  cuda::Uploader uploader(kPieceBytes);
  cuda::Buffer staging;
  for (int pass = 0; pass < impl->form.format->passes; ++pass)
    impl->pass.push_back(cuda::upload_matrix(stored, pass, uploader, staging));
  uploader.synchronize();
  impl_ = std::move(impl);
}

DeviceOperator::~DeviceOperator() = default;

int DeviceOperator::device() const {
  return impl_->device;
}

uint64_t DeviceOperator::bytes() const {
  uint64_t sum = 0;
  for (const cuda::Matrix& matrix : impl_->pass)
    sum += matrix.bytes();
  return sum;
}

int64_t DeviceOperator::padded_cols() const {
  return impl_->padded;
}

bool DeviceOperator::multiplies(int64_t rows, bool exact) const {
  return !exact && rows < cuda::rows_from(*impl_->form.format);
}

uint64_t DeviceOperator::workspace_bytes(int64_t rows, DType type) const {
  const int64_t vectors = rows * impl_->planes(), cols = impl_->quantized_cols();
  uint64_t sum = type == DType::f32 ? 0 : lent_bytes(rows * impl_->form.rows * 4);
  for (size_t p = 0; p < impl_->pass.size(); ++p) {
    sum += lent_bytes(vectors * cols);
    sum += 2 * lent_bytes(vectors * (cols / impl_->group(p)) * 4);  // scales and sums
  }
  return sum;
}

void DeviceOperator::multiply(const MatrixView& x, void* y, int64_t y_stride, Workspace workspace,
                              cuda::Stream stream) const {
  if (x.rows == 0) return;
  cuda::select_device(impl_->device);
  cuda::MemoryPool lent(workspace.memory, workspace.bytes);
  const cuda::MemoryPool::Scope scope(lent);
  const bool rounded = x.type != DType::f32;
  cuda::Buffer sums;  // the product in float32
  if (rounded) sums = cuda::Buffer(static_cast<uint64_t>(x.rows * impl_->form.rows * 4));

  cuda::Activations quantized[2];
  cuda::InputForm forms[2];
  cuda::Matmul product;
  const size_t passes = impl_->pass.size();
  for (size_t p = 0; p < passes; ++p) {
    quantized[p] =
        cuda::Activations(x.rows, impl_->quantized_cols(), impl_->group(p), impl_->planes());
    forms[p].rotation = impl_->form.rotation[p];
    forms[p].padded = impl_->padded;
    forms[p].out = &quantized[p];
    product.pass[p] = &impl_->pass[p];
    product.input[p] = &quantized[p];
  }
  product.y = rounded ? sums.as<float>() : static_cast<float*>(y);
  product.ldy = rounded ? impl_->form.rows : y_stride;
  cuda::prepare(cuda::ForeignRows{x.data, x.type, x.stride, x.cols}, {forms, passes}, x.rows,
                stream);
  cuda::int8_gemm({&product, 1}, x.rows, stream);
  if (!rounded) return;
  cuda::round_rows({product.y, product.ldy, x.rows, impl_->form.rows, y, x.type, y_stride}, stream);
}

void DeviceOperator::dequantize(DType type, void* out, cuda::Stream stream) const {
  cuda::select_device(impl_->device);
  cuda::RowMatmul weights;
  for (size_t p = 0; p < impl_->pass.size(); ++p) {
    weights.pass[p] = &impl_->pass[p];
    weights.rotation[p] = impl_->form.rotation[p];
  }
  weights.cols = impl_->padded;
  cuda::dequantize(weights, cuda::Basis::original, type, 0, impl_->form.rows, out, stream);
}

}  // namespace walsh
