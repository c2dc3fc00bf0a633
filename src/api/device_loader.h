// Brings weights to a GPU in the order that kernels read, for other frameworks: it encodes weights
// in their GPU memory, and copies stored ones.
#pragma once

#include <cstdint>
#include <memory>

#include "api/linear_operator.h"
#include "base/cuda/device.h"

namespace walsh {

// The caller owns this device memory, aligned to 256 bytes. It outlives the objects that are made
// in it.
struct DeviceMemory {
  void* memory = nullptr;
  uint64_t bytes = 0;
};

// Owns the buffers of the encoder and the page-locked memory that loading needs beside the weights.
// There is one per GPU and process. Calls are thread-safe and make this device the calling thread's
// device.
class DeviceLoader {
 public:
  // Returns the loader of GPU `device`, which the first call makes. Throws usage if there is no
  // such device.
  static DeviceLoader& of(int device);
  ~DeviceLoader();
  DeviceLoader(const DeviceLoader&) = delete;
  DeviceLoader& operator=(const DeviceLoader&) = delete;

  // Encodes weights [rows, cols] in memory of this GPU, after the work on `stream`. Rows lie one
  // after the other. The arrays of the result are on the GPU, or on the host for formats that are
  // encoded there (a trellis is searched on the GPU). Bytes and errors are those of
  // LinearOperator::encode; `nmse` may be null.
  Tensor encode(const LayerForm& form, const MatrixView& weights, const EncodeOptions& options,
                ThreadPool& pool, cuda::Stream stream, double* nmse);

  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  explicit DeviceLoader(int device);

  std::unique_ptr<Impl> impl_;
};

}  // namespace walsh
