// Multiplies with linear layers for other frameworks: pointers, shapes and strides come from
// Python, whose tensors stay alive during a call.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "base/cuda/device.h"
#include "base/cuda/first_device.h"
#include "calls.h"
#include "layer_forms.h"
#include "layers.h"
#include "module.h"
#include "walsh/error.h"

namespace walsh::python {
namespace {

// Refuses what GPU `device` will not multiply with, before anything is copied there.
void check_gpu(const std::string& type, int64_t rows, int64_t cols,
               const std::vector<RotationTuple>& rotations, int device) {
  refuse_unsupported(form_of(type, rows, cols, rotations), device);
  if (!cuda::first_device()) throw Error(ErrorCode::usage, "CUDA", cuda::unavailable_reason());
}

using ArrayTuple = std::tuple<std::string, int64_t, int64_t>;  // name, rows, bytes of a row

std::vector<ArrayTuple> arrays_of(const LayerForm& form) {
  std::vector<ArrayTuple> result;
  for (const LayerArray& array : layer_arrays(form))
    result.emplace_back(array.name, array.rows, array.row_bytes);
  return result;
}

std::tuple<std::string, std::vector<RotationTuple>> new_form(const std::string& type, int64_t rows,
                                                             int64_t cols,
                                                             const std::string& rotation, int block,
                                                             uint32_t seed, bool fast) {
  const LayerForm form =
      make_form(type, rows, cols, rotation, block, seed, fast ? Effort::fast : Effort::full);
  std::vector<RotationTuple> rotations;
  for (int pass = 0; pass < form.format->passes; ++pass) {
    const Rotation& r = form.rotation[pass];
    rotations.emplace_back(rotation_kind_name(r.kind), r.block, r.seed, r.signs);
  }
  return {std::string(form.format->name), rotations};
}

std::tuple<int64_t, double> encode(const std::string& type, int64_t rows, int64_t cols,
                                   const std::vector<RotationTuple>& rotations,
                                   const MatrixTuple& weights, bool fast, bool shape_gain) {
  const LayerForm form = form_of(type, rows, cols, rotations);
  const MatrixView matrix = view_of(weights);
  const EncodeOptions options = options_of(fast, shape_gain);
  int64_t handle = 0;
  double nmse = 0;
  run_interruptible([&] {
    Layers::all().with_pool([&](ThreadPool& pool) {
      handle = Layers::all().add(LinearOperator::encode(form, matrix, options, pool, &nmse));
    });
  });
  return {handle, nmse};
}

int64_t restore(const std::string& type, int64_t rows, int64_t cols,
                const std::vector<RotationTuple>& rotations,
                const std::vector<PlaceTuple>& arrays) {
  const LayerForm form = form_of(type, rows, cols, rotations);
  const Call call;
  return Layers::all().add(LinearOperator::restore(form, spans_of(arrays)));
}

// Refuses a number that is not that of the layer. Operators are public: their arguments need not
// fit it.
void expect(const char* what, int64_t given, int64_t own) {
  if (given == own) return;
  throw Error(ErrorCode::usage, what,
              std::to_string(given) + ", the layer has " + std::to_string(own));
}

// Copies the stored arrays to memory of so many bytes each.
void store(int64_t handle, const std::vector<PlaceTuple>& places) {
  const Call call;
  const std::vector<std::vector<std::byte>> arrays = Layers::all().find(handle).on_host().arrays();
  expect("arrays", std::ssize(places), std::ssize(arrays));
  for (size_t i = 0; i < arrays.size(); ++i)
    expect("bytes of an array", static_cast<int64_t>(std::get<1>(places[i])),
           std::ssize(arrays[i]));
  for (size_t i = 0; i < arrays.size(); ++i)
    std::copy(arrays[i].begin(), arrays[i].end(),
              reinterpret_cast<std::byte*>(std::get<0>(places[i])));
}

void multiply(int64_t handle, const MatrixTuple& x, uint64_t y, int64_t rows, int64_t y_stride,
              bool exact) {
  const MatrixView view = view_of(x);
  const Call call;
  const Layer layer = Layers::all().find(handle);
  if (layer.device) {
    throw Error(ErrorCode::usage, "input",
                "on the CPU, the layer is on cuda:" + std::to_string(layer.device->device()));
  }
  expect("rows", rows, layer.form().rows);
  Layers::all().with_threads([&](RunThreads run) {
    layer.host->multiply(view, reinterpret_cast<void*>(y), y_stride, exact, run);
  });
}

void decode(int64_t handle, uint64_t out, int64_t rows, int64_t cols) {
  const Call call;
  const Layer layer = Layers::all().find(handle);
  expect("rows", rows, layer.form().rows);
  expect("columns", cols, layer.form().cols);
  Layers::all().with_threads(
      [&](RunThreads run) { layer.on_host().decode(reinterpret_cast<float*>(out), run); });
}

}  // namespace

void bind_operators(nb::module_& module) {
  module.def("layer_form", &new_form);
  module.def("layer_arrays", [](const std::string& type, int64_t rows, int64_t cols,
                                const std::vector<RotationTuple>& rotations) {
    return arrays_of(form_of(type, rows, cols, rotations));
  });
  module.def("layer_check_gpu", &check_gpu);
  module.def("layer_encode", &encode);
  module.def("layer_restore", &restore);
  module.def("layer_store", &store);
  module.def("layer_multiply", &multiply);
  module.def("layer_decode", &decode);
  module.def("layer_bytes", [](int64_t handle) {
    const Layer layer = Layers::all().find(handle);
    return layer.host ? layer.host->bytes() : layer.device->bytes();
  });
  module.def("layer_free", [](int64_t handle) { Layers::all().remove(handle); });
  module.def("layer_threads", [](int threads) { Layers::all().set_threads(threads); });
  module.def("layer_host_threads", [](uint64_t parallel, uint64_t thread, uint64_t threads) {
    Layers::all().set_host(HostThreads(parallel, thread, threads));
  });
}

}  // namespace walsh::python
