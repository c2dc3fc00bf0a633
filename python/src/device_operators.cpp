// Multiplies with layers on GPUs: everything crosses the border as a number, since these calls
// stand between the launches of a decode step.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "base/cuda/first_device.h"
#include "calls.h"
#include "layer_forms.h"
#include "layers.h"
#include "module.h"

namespace walsh::python {
namespace {

// Returns the layer `handle` on the GPU.
std::shared_ptr<const DeviceOperator> placed(int64_t handle) {
  std::shared_ptr<const DeviceOperator> layer = Layers::all().find(handle).device;
  if (layer) return layer;
  throw Error(ErrorCode::usage, "input", "on a GPU, the layer is on the CPU: move it with .to()");
}

// Copies the weights to GPU `device`, or with -1 takes them from the one they are on.
void place(int64_t handle, int device) {
  const Call call;
  const Layer layer = Layers::all().find(handle);
  if (device >= 0) {
    Layers::all().place(handle, std::make_shared<const DeviceOperator>(layer.on_host(), device));
  } else if (layer.device) {
    layer.on_host();
    Layers::all().place(handle, nullptr);
  }
}

// Returns how x[m][cols] on GPU `device` is multiplied to y[m][rows]: the bytes of the workspace
// that it takes, or -1 if by dequantized weights.
int64_t plan(int64_t handle, int64_t m, int64_t rows, int64_t cols, int type, bool exact,
             int device) {
  const Layer layer = Layers::all().find(handle);
  if (!layer.device || layer.device->device() != device) {
    const std::string place =
        layer.device ? "cuda:" + std::to_string(layer.device->device()) : "the CPU";
    throw Error(ErrorCode::usage, "input",
                "on cuda:" + std::to_string(device) + ", the layer is on " + place);
  }
  if (cols != layer.form().cols) {
    throw Error(ErrorCode::usage, "input",
                "rows of " + std::to_string(cols) + " values, expected " +
                    std::to_string(layer.form().cols));
  }
  if (rows != layer.form().rows) {
    throw Error(ErrorCode::usage, "rows",
                std::to_string(rows) + ", the layer has " + std::to_string(layer.form().rows));
  }
  const DType dtype = dtype_of(type);
  if (!layer.device->multiplies(m, exact)) return -1;
  return static_cast<int64_t>(layer.device->workspace_bytes(m, dtype));
}

void multiply(int64_t handle, uint64_t x, int type, int64_t m, int64_t x_stride, uint64_t y,
              int64_t y_stride, uint64_t workspace, uint64_t workspace_bytes, uint64_t stream) {
  const Layer layer = Layers::all().find(handle);
  if (!layer.device) throw Error(ErrorCode::usage, "input", "the layer has left the GPU");
  if (m > 0 && x == 0) throw Error(ErrorCode::usage, "input", "it has no storage");
  const MatrixView view = {pointer(x), dtype_of(type), m, layer.form().cols, x_stride};
  const Call call;
  layer.device->multiply(view, pointer(y), y_stride, {pointer(workspace), workspace_bytes},
                         pointer<CUstream_st>(stream));
}

void dequantize(int64_t handle, int type, uint64_t out, uint64_t stream) {
  const auto layer = placed(handle);
  const Call call;
  layer->dequantize(dtype_of(type), pointer(out), pointer<CUstream_st>(stream));
}

}  // namespace

void bind_device_operators(nb::module_& module) {
  module.def("device_place", &place);
  module.def("device_plan", &plan);
  module.def("device_multiply", &multiply);
  module.def("device_dequantize", &dequantize);
  module.def("device_shape", [](int64_t handle) {  // of dequantized weights
    return std::make_tuple(Layers::all().find(handle).form().rows, placed(handle)->padded_cols());
  });
  module.def("device_bytes", [](int64_t handle) { return placed(handle)->bytes(); });
  module.def("device_unavailable",
             [] { return cuda::first_device() ? std::string() : cuda::unavailable_reason(); });
}

}  // namespace walsh::python
