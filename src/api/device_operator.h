// A linear layer on a GPU for other frameworks: products on their memory and their streams.
#pragma once

#include <cstdint>
#include <memory>

#include "api/linear_operator.h"
#include "base/cuda/device.h"

namespace walsh {

// The weights of a layer in the memory of a GPU. Calls take device memory, run on the caller's
// stream, allocate nothing and wait for nothing, so that they can be captured into a graph. Const
// use is thread-safe; the device of the calling thread becomes this one's.
class DeviceOperator {
 public:
  // Copies the weights. Throws usage where there is no such device, or the device has no kernels
  // for the format or the rotation; limit where its memory does not suffice.
  DeviceOperator(const LinearOperator& layer, int device);
  ~DeviceOperator();
  DeviceOperator(const DeviceOperator&) = delete;
  DeviceOperator& operator=(const DeviceOperator&) = delete;

  int device() const;
  uint64_t bytes() const;  // of device memory
  // Row length of dequantized weights, at least that of the layer.
  int64_t padded_cols() const;

  // Whether multiply() is the way to multiply so many rows; otherwise weights that dequantize()
  // made are multiplied faster, or, with `exact`, without the rounding of inputs to int8.
  bool multiplies(int64_t rows, bool exact) const;
  // Of the workspace of multiply(), by the rows and the type of its input.
  uint64_t workspace_bytes(int64_t rows, DType type) const;
  // y[m][rows] = x[m][cols] W^T with int8 inputs as the format asks; y has the type and the row
  // count of x and `y_stride` values from row to row. The workspace is 256-byte aligned.
  struct Workspace {
    void* memory = nullptr;
    uint64_t bytes = 0;
  };
  void multiply(const MatrixView& x, void* y, int64_t y_stride, Workspace workspace,
                cuda::Stream stream) const;
  // The weights in the original basis rounded to f16 or bf16, out[rows][padded_cols]. Columns
  // behind those of the layer have no meaning.
  void dequantize(DType type, void* out, cuda::Stream stream) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace walsh
