// Linear layers for other frameworks: pointers, shapes and strides come from Python, whose tensors
// stay alive during a call.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "base/cuda/device.h"
#include "base/cuda/first_device.h"
#include "calls.h"
#include "layers.h"
#include "module.h"
#include "walsh/error.h"

namespace walsh::python {
namespace {

// Kind, block, seed and signs of a rotation.
using RotationTuple = std::tuple<std::string, int, uint32_t, bool>;
// Address, name of the type, rows, columns and stride of a matrix.
using MatrixTuple = std::tuple<uint64_t, std::string, int64_t, int64_t, int64_t>;

DType dtype_of(const std::string& name) {
  if (name == "float32") return DType::f32;
  if (name == "float16") return DType::f16;
  if (name == "bfloat16") return DType::bf16;
  throw Error(ErrorCode::usage, name, "expected float32, float16 or bfloat16");
}

MatrixView view_of(const MatrixTuple& matrix) {
  const auto& [address, type, rows, cols, stride] = matrix;
  // A pointer crosses the border as a number.
  return {reinterpret_cast<const void*>(address), dtype_of(type), rows, cols, stride};
}

// The arrays exist, so `type` is a name as files have it.
LayerForm form_of(const std::string& type, int64_t rows, int64_t cols,
                  const std::vector<RotationTuple>& rotations) {
  LayerForm form = {&stored_format(type), rows, cols, {}};
  if (rotations.size() != static_cast<size_t>(form.format->passes)) {
    throw Error(ErrorCode::bad_input, "rotation",
                "one for each of the " + std::to_string(form.format->passes) + " passes expected");
  }
  for (size_t pass = 0; pass < rotations.size(); ++pass) {
    const auto& [kind, block, seed, signs] = rotations[pass];
    const bool power = block >= 32 && block <= 1024 && (block & (block - 1)) == 0;
    if (!power) throw Error(ErrorCode::bad_input, "rotation block", std::to_string(block));
    form.rotation[pass] = {parse_rotation_kind(kind), block, seed, signs};
  }
  return form;
}

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
  const EncodeOptions options = {fast ? Effort::fast : Effort::full,
                                 shape_gain ? ScaleRule::shape_gain : ScaleRule::search};
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
                const std::vector<std::tuple<uint64_t, uint64_t>>& arrays) {
  const LayerForm form = form_of(type, rows, cols, rotations);
  std::vector<std::span<const std::byte>> spans;
  for (const auto& [address, bytes] : arrays)
    spans.emplace_back(reinterpret_cast<const std::byte*>(address), bytes);
  const Call call;
  return Layers::all().add(LinearOperator::restore(form, spans));
}

// What the caller has memory for. Operators are public: their arguments need not fit the layer.
void expect(const char* what, int64_t given, int64_t own) {
  if (given == own) return;
  throw Error(ErrorCode::usage, what,
              std::to_string(given) + ", the layer has " + std::to_string(own));
}

// Copies the stored arrays to memory of so many bytes each.
void store(int64_t handle, const std::vector<std::tuple<uint64_t, uint64_t>>& places) {
  const Call call;
  const std::vector<std::vector<std::byte>> arrays = Layers::all().find(handle).host->arrays();
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
  expect("rows", rows, layer.host->form().rows);
  Layers::all().with_threads([&](RunThreads run) {
    layer.host->multiply(view, reinterpret_cast<void*>(y), y_stride, exact, run);
  });
}

void decode(int64_t handle, uint64_t out, int64_t rows, int64_t cols) {
  const Call call;
  const Layer layer = Layers::all().find(handle);
  expect("rows", rows, layer.host->form().rows);
  expect("columns", cols, layer.host->form().cols);
  Layers::all().with_threads(
      [&](RunThreads run) { layer.host->decode(reinterpret_cast<float*>(out), run); });
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
  module.def("layer_bytes",
             [](int64_t handle) { return Layers::all().find(handle).host->bytes(); });
  module.def("layer_free", [](int64_t handle) { Layers::all().remove(handle); });
  module.def("layer_threads", [](int threads) { Layers::all().set_threads(threads); });
  module.def("layer_host_threads", [](uint64_t parallel, uint64_t thread, uint64_t threads) {
    Layers::all().set_host(HostThreads(parallel, thread, threads));
  });
}

}  // namespace walsh::python
