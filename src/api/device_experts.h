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

// Each expert has products to gate and up, of `width` rows each which lie side by side, and a
// product back from them. Calls take device memory, run on the caller's stream, and neither
// allocate nor wait, so that they can be captured into a graph. Const use is thread-safe; calls
// make this device the calling thread's device.
class DeviceExperts {
 public:
  struct Shape {
    // All experts have these layers. The first is gate and up together, or gate and up follow each
    // other; down is the last.
    std::vector<LayerForm> layers;
    int64_t count = 0;  // there are this many experts

    int64_t width() const { return layers.back().cols; }
    int64_t hidden() const { return layers.back().rows; }
  };
  // Throws usage if the sizes of layers do not fit each other, or if a GPU has no kernels for them.
  static uint64_t memory_bytes(const Shape& shape);
  // Takes memory_bytes(shape) of the caller's memory on GPU `device`, and has no weights yet.
  DeviceExperts(const Shape& shape, int device, const DeviceMemory& memory);
  ~DeviceExperts();
  DeviceExperts(const DeviceExperts&) = delete;
  DeviceExperts& operator=(const DeviceExperts&) = delete;

  int device() const;
  const Shape& shape() const;
  int64_t padded_cols(size_t layer) const;  // a row of dequantized weights has this length
  // Returns whether the weights of several experts can be encoded as those of one matrix, their
  // rows one after the other, with the same bytes.
  bool encodes_together(size_t layer) const;

  // Copies weights of one layer of the experts from number `first` on, as many experts as the rows
  // of `stored` are for, after the work on `stream`. No other call may run meanwhile.
  void fill(size_t layer, int64_t first, const Tensor& stored, cuda::Stream stream);

  struct Call {
    MatrixView x;                    // its shape is [rows][hidden]
    const float* weights = nullptr;  // its shape is [rows][chosen]
    // These are the experts' numbers, [rows][chosen]; any other number stands for none.
    const void* ids = nullptr;
    bool wide = false;  // the ids are int64, not int32
    int chosen = 0;
    GateFunction function = GateFunction::silu;
    void* out = nullptr;  // its shape is [rows][hidden], its type is that of x
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
