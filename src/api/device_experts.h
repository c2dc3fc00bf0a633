// Runs the experts of a layer on a GPU for other frameworks: uses their memory, their streams and
// their choice of experts, which stays on the device.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "api/device_loader.h"
#include "api/linear_operator.h"
#include "arch/layer.h"
#include "base/cuda/device.h"

namespace walsh {

// Every expert has products to gate and up of its `width`, whose rows lie side by side, and one
// back from them. Calls take device memory, run on the caller's stream, and neither allocate nor
// wait, so that they can be captured into a graph. Const use is thread-safe; calls make this device
// the calling thread's device.
class DeviceExperts {
 public:
  struct Shape {
    // All experts have these layers: gate and up together, or gate, then up; down is the last.
    std::vector<LayerForm> layers;
    int64_t count = 0;  // of experts

    int64_t width() const { return layers.back().cols; }
    int64_t hidden() const { return layers.back().rows; }
  };
  // Throws usage if sizes of layers do not fit each other, or for what a GPU has no kernels for.
  static uint64_t memory_bytes(const Shape& shape);
  // Takes memory_bytes(shape) of the caller's memory on GPU `device`, and has no weights yet.
  DeviceExperts(const Shape& shape, int device, const DeviceMemory& memory);
  ~DeviceExperts();
  DeviceExperts(const DeviceExperts&) = delete;
  DeviceExperts& operator=(const DeviceExperts&) = delete;

  int device() const;
  const Shape& shape() const;
  int64_t padded_cols(size_t layer) const;  // row length of dequantized weights
  // Returns whether the weights of several experts can be encoded as those of one matrix, their
  // rows behind each other, with the same bytes.
  bool encodes_together(size_t layer) const;

  // Copies weights of one layer of the experts from number `first` on, as many as the rows of
  // `stored` are for, behind the work on `stream`. Must not be called beside others.
  void fill(size_t layer, int64_t first, const Tensor& stored, cuda::Stream stream);

  struct Call {
    MatrixView x;                    // [rows][hidden]
    const float* weights = nullptr;  // [rows][chosen]
    const void* ids = nullptr;       // [rows][chosen], of experts; others stand for none
    bool wide = false;               // ids are int64, not int32
    int chosen = 0;
    GateFunction function = GateFunction::silu;
    void* out = nullptr;  // [rows][hidden], of the type of x
  };
  // Returns the bytes of the workspace of multiply(), which is 256-byte aligned.
  uint64_t workspace_bytes(int64_t rows, int chosen, DType type) const;
  // Computes out[t] = sum over k of weights[t][k] * down(function(gate(x[t])) * up(x[t])) with the
  // layers of expert ids[t][k] and int8 inputs as the formats prescribe.
  void multiply(const Call& call, const DeviceMemory& workspace, cuda::Stream stream) const;
  // Decodes a layer of an expert to out[rows][padded_cols], as DeviceOperator::dequantize does.
  void dequantize(size_t layer, int64_t expert, DType type, void* out, cuda::Stream stream) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace walsh
