// Places the weights of a layer in GPU memory, and tells how their inputs are quantized.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "api/device_loader.h"
#include "codec/encode/cuda/encoder.h"
#include "kernels/cuda/gemv/gemv.h"

namespace walsh {

struct PlacedWeights {
  LayerForm form;
  int64_t padded = 0;  // a stored row has this many columns
  std::vector<cuda::Matrix> pass;

  PlacedWeights() = default;
  // Takes memory, which has no weights yet, on the current device.
  explicit PlacedWeights(const LayerForm& form);
  // Copies weights of this form.
  void fill(const Tensor& stored, cuda::Uploader& uploader, cuda::Buffer& staging) const;

  // Returns the columns per scale of the int8 inputs of a pass.
  int group(size_t p) const;
  int planes() const { return form.format->activation_planes; }
  int64_t quantized_cols() const;  // the int8 inputs have this many columns
  uint64_t bytes() const;
  // Decodes all rows to out[rows][padded].
  void dequantize(DType type, void* out, cuda::Stream stream) const;
};

struct DeviceLoader::Impl {
  explicit Impl(int index);

  int device;
  std::mutex mutex;  // a caller has all of this alone
  cuda::GpuEncoder encoder;
  cuda::Uploader uploader;
  cuda::Buffer staging;
};

}  // namespace walsh
