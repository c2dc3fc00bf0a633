#include "api/device_operator.h"

#include <algorithm>
#include <vector>

#include "api/cuda/placed_weights.h"
#include "base/checked.h"
#include "base/cuda/memory_pool.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/rows/foreign_rows.h"

namespace walsh {
namespace {

// Copies pass through this much page-locked memory.
constexpr uint64_t kPieceBytes = uint64_t{2} << 20;

uint64_t lent_bytes(int64_t bytes) {
  return static_cast<uint64_t>(round_up(bytes, static_cast<int64_t>(cuda::MemoryPool::kAlignment)));
}

}  // namespace

struct DeviceOperator::Impl {
  int device = 0;
  PlacedWeights weights;
  bool in_batches = false;  // there are kernels for batches of these codes

  const LayerForm& form() const { return weights.form; }
  bool has_batch(int64_t rows) const {
    return in_batches && rows > cuda::kMaxVectors && rows <= cuda::kMaxBatch;
  }
  void find_kernels();
};

// Finds out whether batches have kernels. The layer's device must be the current one.
void DeviceOperator::Impl::find_kernels() {
  in_batches = true;
  for (size_t p = 0; p < weights.pass.size(); ++p) {
    in_batches &=
        weights.group(p) == cuda::kChunkColumns && cuda::BatchSpace::knows(weights.pass[p]);
  }
}

DeviceOperator::DeviceOperator(const LinearOperator& layer, int device) {
  refuse_unsupported(layer.form(), device);
  cuda::use_device(device);
  auto impl = std::make_unique<Impl>();
  impl->device = device;
  const std::vector<std::vector<std::byte>> arrays = layer.arrays();
  const std::vector<std::span<const std::byte>> spans(arrays.begin(), arrays.end());
  cuda::Uploader uploader(kPieceBytes);
  cuda::Buffer staging;
  impl->weights = PlacedWeights(layer.form());
  impl->weights.fill(stored_tensor(layer.form(), spans), uploader, staging);
  uploader.synchronize();
  impl->find_kernels();
  impl_ = std::move(impl);
}

DeviceOperator::DeviceOperator(const LayerForm& form, const Tensor& stored, int device,
                               const DeviceMemory& memory, cuda::Stream stream) {
  refuse_unsupported(form, device);
  DeviceLoader::Impl& loader = DeviceLoader::of(device).impl();
  const std::lock_guard lock(loader.mutex);
  cuda::use_device(device);
  cuda::synchronize(stream);  // the memory may have been somebody else's
  auto impl = std::make_unique<Impl>();
  impl->device = device;
  {
    cuda::MemoryPool lent(memory.memory, memory.bytes);
    const cuda::MemoryPool::Scope scope(lent);
    impl->weights = PlacedWeights(form);
  }
  impl->weights.fill(stored, loader.uploader, loader.staging);
  loader.uploader.synchronize();
  impl->find_kernels();
  impl_ = std::move(impl);
}

uint64_t DeviceOperator::memory_bytes(const LayerForm& form) {
  cuda::MemoryPool measure;
  const cuda::MemoryPool::Scope scope(measure);
  const PlacedWeights unused(form);
  return measure.used();
}

DeviceOperator::~DeviceOperator() = default;

int DeviceOperator::device() const {
  return impl_->device;
}

const LayerForm& DeviceOperator::form() const {
  return impl_->form();
}

uint64_t DeviceOperator::bytes() const {
  return impl_->weights.bytes();
}

int64_t DeviceOperator::padded_cols() const {
  return impl_->weights.padded;
}

bool DeviceOperator::multiplies(int64_t rows, bool exact) const {
  return !exact && (rows < cuda::rows_from(*impl_->form().format) || impl_->has_batch(rows));
}

uint64_t DeviceOperator::workspace_bytes(int64_t rows, DType type) const {
  cuda::select_device(impl_->device);
  const PlacedWeights& w = impl_->weights;
  const int64_t vectors = rows * w.planes(), cols = w.quantized_cols();
  uint64_t sum = type == DType::f32 ? 0 : lent_bytes(rows * w.form.rows * 4);
  for (size_t p = 0; p < w.pass.size(); ++p) {
    sum += lent_bytes(vectors * cols);
    // Scales and sums take the same memory.
    sum += 2 * lent_bytes(vectors * (cols / w.group(p)) * 4);
  }
  if (impl_->has_batch(rows)) {  // a batch has three buffers
    sum += lent_bytes(static_cast<int64_t>(cuda::BatchSpace::bytes(rows, cols, w.planes()))) +
           3 * cuda::MemoryPool::kAlignment;
  }
  return sum;
}

void DeviceOperator::multiply(const MatrixView& x, void* y, int64_t y_stride, Workspace workspace,
                              cuda::Stream stream) const {
  if (x.rows == 0) return;
  cuda::select_device(impl_->device);
  cuda::MemoryPool lent(workspace.memory, workspace.bytes);
  const cuda::MemoryPool::Scope scope(lent);
  const PlacedWeights& w = impl_->weights;
  const bool rounded = x.type != DType::f32;
  cuda::Buffer sums;  // it holds the product in float32
  if (rounded) sums = cuda::Buffer(static_cast<uint64_t>(x.rows * w.form.rows * 4));
  cuda::BatchSpace batch;
  if (impl_->has_batch(x.rows))
    batch = cuda::BatchSpace(x.rows, w.quantized_cols(), w.planes(), stream);

  cuda::Activations quantized[2];
  cuda::InputForm forms[2];
  cuda::Matmul product;
  const size_t passes = w.pass.size();
  for (size_t p = 0; p < passes; ++p) {
    quantized[p] = cuda::Activations(x.rows, w.quantized_cols(), w.group(p), w.planes());
    forms[p].rotation = w.form.rotation[p];
    forms[p].padded = w.padded;
    forms[p].out = &quantized[p];
    product.pass[p] = &w.pass[p];
    product.input[p] = &quantized[p];
  }
  product.y = rounded ? sums.as<float>() : static_cast<float*>(y);
  product.ldy = rounded ? w.form.rows : y_stride;
  cuda::prepare(cuda::ForeignRows{x.data, x.type, x.stride, x.cols}, {forms, passes}, x.rows,
                stream);
  cuda::int8_gemm({&product, 1}, x.rows, stream, batch);
  if (!rounded) return;
  cuda::round_rows({product.y, product.ldy, x.rows, w.form.rows, y, x.type, y_stride}, stream);
}

void DeviceOperator::dequantize(DType type, void* out, cuda::Stream stream) const {
  cuda::select_device(impl_->device);
  impl_->weights.dequantize(type, out, stream);
}

}  // namespace walsh
