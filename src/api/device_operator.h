// Runs a linear layer on a GPU for other frameworks: uses their memory and their streams.
#pragma once

#include <cstdint>
#include <memory>

#include "api/device_loader.h"
#include "api/linear_operator.h"
#include "base/cuda/device.h"

namespace walsh {

// Holds the weights of a layer in GPU memory. Calls take device memory, run on the caller's stream,
// and neither allocate nor wait, so that they can be captured into a graph. Const use is
// thread-safe; calls make this device the calling thread's device.
class DeviceOperator {
 public:
  // Copies the weights. Throws usage if there is no such device or it has no kernels for the format
  // or the rotation, limit if its memory does not suffice.
  DeviceOperator(const LinearOperator& layer, int device);
  // Copies weights from stored arrays of a form, of the host or of this GPU, to the caller's memory
  // of memory_bytes(form), after the work on `stream`.
  DeviceOperator(const LayerForm& form, const Tensor& stored, int device,
                 const DeviceMemory& memory, cuda::Stream stream);
  static uint64_t memory_bytes(const LayerForm& form);
  ~DeviceOperator();
  DeviceOperator(const DeviceOperator&) = delete;
  DeviceOperator& operator=(const DeviceOperator&) = delete;

  int device() const;
  const LayerForm& form() const;
  uint64_t bytes() const;  // the layer takes this much device memory
  // Returns the row length of dequantized weights, which is at least the layer's.
  int64_t padded_cols() const;

  // Returns whether multiply() is to be used for this many rows. Otherwise a product with
  // dequantize()'s weights is faster, or, with `exact`, avoids rounding inputs to int8.
  bool multiplies(int64_t rows, bool exact) const;
  // Returns how many bytes the workspace of multiply() needs for this many rows of this type.
  uint64_t workspace_bytes(int64_t rows, DType type) const;
  // Computes y[m][rows] = x[m][cols] W^T with int8 inputs as the format prescribes; y has the type
  // and row count of x, with `y_stride` values from row to row. The workspace is 256-byte aligned.
  struct Workspace {
    void* memory = nullptr;
    uint64_t bytes = 0;
  };
  void multiply(const MatrixView& x, void* y, int64_t y_stride, Workspace workspace,
                cuda::Stream stream) const;
  // Writes the weights in the original basis as f32, or rounded to f16 or bf16, to
  // out[rows][padded_cols]. Columns beyond the layer's are undefined.
  void dequantize(DType type, void* out, cuda::Stream stream) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace walsh
