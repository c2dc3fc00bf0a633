#include "api/device_loader.h"

#include <map>
#include <vector>

#include "api/cuda/placed_weights.h"
#include "codec/encode/encode_tensor.h"
#include "codec/plain/dense.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// Copies pass through this much page-locked memory.
constexpr uint64_t kPieceBytes = uint64_t{8} << 20;

// Returns the weights as a tensor that the encoder reads where it is.
Tensor tensor_of(const MatrixView& weights) {
  Tensor tensor;
  tensor.format = &dense_format(weights.type);
  tensor.rows = weights.rows;
  tensor.cols = weights.cols;
  tensor.data = {static_cast<const std::byte*>(weights.data),
                 static_cast<size_t>(weights.rows * weights.cols * dtype_size(weights.type))};
  tensor.on_gpu = true;
  return tensor;
}

// Encodes a layer on the host; only the search of trellis tiles runs on the GPU.
Tensor encode_beside(cuda::GpuEncoder& encoder, const LayerForm& form, const Tensor& source,
                     const EncodeOptions& options, ThreadPool& pool, cuda::Stream stream,
                     double* error, double* norm) {
  std::vector<std::byte> host(source.data.size());
  cuda::copy_to_host(host.data(), source.data.data(), host.size(), stream);
  cuda::synchronize(stream);
  const DType type = source.format->dtype;
  const auto row_bytes = static_cast<size_t>(form.cols * dtype_size(type));
  const auto read = [&](int64_t begin, int64_t end, float* out) {
    dense_to_f32(type, host.data() + static_cast<size_t>(begin) * row_bytes,
                 (end - begin) * form.cols, out);
  };
  return encode_tensor(*form.format, form.rotation, options, form.rows, form.cols, read, pool,
                       error, norm, nullptr, &encoder.tiles());
}

}  // namespace

DeviceLoader::Impl::Impl(int index)
    : device(cuda::use_device(index).index), encoder(index), uploader(kPieceBytes) {}

DeviceLoader::DeviceLoader(int device) : impl_(std::make_unique<Impl>(device)) {}
DeviceLoader::~DeviceLoader() = default;

DeviceLoader& DeviceLoader::of(int device) {
  static std::mutex mutex;
  // The loaders are never destroyed, because the driver may be gone before static objects are.
  static auto& loaders = *new std::map<int, std::unique_ptr<DeviceLoader>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<DeviceLoader>& loader = loaders[device];
  if (!loader) loader.reset(new DeviceLoader(device));
  return *loader;
}

Tensor DeviceLoader::encode(const LayerForm& form, const MatrixView& weights,
                            const EncodeOptions& options, ThreadPool& pool, cuda::Stream stream,
                            double* nmse) {
  if (weights.rows != form.rows || weights.cols != form.cols || weights.stride != weights.cols) {
    throw Error(ErrorCode::usage, "weights",
                std::to_string(weights.rows) + " x " + std::to_string(weights.cols) +
                    ", expected contiguous " + std::to_string(form.rows) + " x " +
                    std::to_string(form.cols));
  }
  const std::lock_guard lock(impl_->mutex);
  cuda::use_device(impl_->device);
  cuda::synchronize(stream);
  const Tensor source = tensor_of(weights);
  double error = 0, norm = 0;
  Tensor result;
  try {
    if (impl_->encoder.supports(*form.format, form.rotation, form.cols)) {
      result = impl_->encoder.encode_on_device(*form.format, form.rotation, options, source, {},
                                               &error, &norm);
    } else {
      result = encode_beside(impl_->encoder, form, source, options, pool, stream, &error, &norm);
    }
  } catch (const Error& e) {
    if (!e.where().empty()) throw;
    throw Error(e.code(), "weights", e.reason());
  }
  if (nmse != nullptr) *nmse = norm > 0 ? error / norm : 0;
  return result;
}

}  // namespace walsh
