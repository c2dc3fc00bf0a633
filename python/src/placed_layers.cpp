// Makes layers and experts whose weights are on a GPU alone, in memory that PyTorch lends: they are
// encoded there, or copied from stored arrays.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "api/device_experts.h"
#include "calls.h"
#include "layer_forms.h"
#include "layers.h"
#include "model/support.h"
#include "module.h"

namespace walsh::python {

Tensor checked_tensor(const LayerForm& form, const std::vector<PlaceTuple>& arrays) {
  const std::vector<LayerArray> expected = layer_arrays(form);
  if (arrays.size() != expected.size()) {
    throw Error(
        ErrorCode::bad_input, "arrays",
        std::to_string(arrays.size()) + " of them, expected " + std::to_string(expected.size()));
  }
  for (size_t i = 0; i < arrays.size(); ++i) {
    const auto bytes = static_cast<uint64_t>(expected[i].rows * expected[i].row_bytes);
    if (std::get<1>(arrays[i]) == bytes) continue;
    throw Error(
        ErrorCode::bad_input, expected[i].name,
        std::to_string(std::get<1>(arrays[i])) + " bytes, expected " + std::to_string(bytes));
  }
  return stored_tensor(form, spans_of(arrays));
}

namespace {

DeviceMemory memory_of(const PlaceTuple& place) {
  return {pointer(std::get<0>(place)), std::get<1>(place)};
}

CUstream_st* stream_of(uint64_t stream) {
  return pointer<CUstream_st>(stream);
}

// Encodes weights in memory of GPU `device`.
Tensor encoded(int device, const LayerForm& form, const MatrixView& weights,
               const EncodeOptions& options, uint64_t stream, double* nmse) {
  Tensor result;
  Layers::all().with_pool([&](ThreadPool& pool) {
    result = DeviceLoader::of(device).encode(form, weights, options, pool, stream_of(stream), nmse);
  });
  return result;
}

int64_t add(const LayerForm& form, const Tensor& stored, int device, const PlaceTuple& memory,
            uint64_t stream) {
  return Layers::all().add_placed(std::make_shared<const DeviceOperator>(
      form, stored, device, memory_of(memory), stream_of(stream)));
}

std::tuple<int64_t, double> encode(const FormTuple& layer, const MatrixTuple& weights, bool fast,
                                   bool shape_gain, int device, const PlaceTuple& memory,
                                   uint64_t stream) {
  const LayerForm form = form_of(layer);
  const MatrixView view = view_of(weights);
  double nmse = 0;
  const Call call;
  const Tensor stored = encoded(device, form, view, options_of(fast, shape_gain), stream, &nmse);
  return {add(form, stored, device, memory, stream), nmse};
}

int64_t restore(const FormTuple& layer, const std::vector<PlaceTuple>& arrays, int device,
                const PlaceTuple& memory, uint64_t stream) {
  const LayerForm form = form_of(layer);
  const Call call;
  return add(form, checked_tensor(form, arrays), device, memory, stream);
}

// Returns the names of the formats that GPUs multiply with, as users choose them.
std::vector<std::string> types() {
  LoadOptions options;
  options.device = {true, 0};
  std::vector<std::string> result;
  for (const Format* format : listed_formats()) {
    const bool runs = !format->dense && why_not({.format = format}, options).empty();
    if (runs) result.emplace_back(listed_name(*format));
  }
  return result;
}

DeviceExperts::Shape shape_of(const std::vector<FormTuple>& layers, int64_t count) {
  DeviceExperts::Shape shape;
  for (const FormTuple& layer : layers)
    shape.layers.push_back(form_of(layer));
  shape.count = count;
  return shape;
}

const LayerForm& layer_of(const DeviceExperts& experts, size_t layer) {
  if (layer < experts.shape().layers.size()) return experts.shape().layers[layer];
  throw Error(ErrorCode::usage, "experts", "they have no layer " + std::to_string(layer));
}

// Encodes a layer of all experts, whose weights lie behind each other.
void encode_experts(int64_t handle, size_t layer, const MatrixTuple& weights, bool fast,
                    bool shape_gain, uint64_t stream) {
  MatrixView view = view_of(weights);
  const Call call;
  const std::shared_ptr<DeviceExperts> experts = PlacedExperts::all().find(handle);
  LayerForm form = layer_of(*experts, layer);
  const int64_t together = experts->encodes_together(layer) ? experts->shape().count : 1;
  if (view.rows != form.rows * experts->shape().count)
    throw Error(ErrorCode::usage, "weights", "they are not those of all experts");
  form.rows *= together;
  view.rows = form.rows;
  for (int64_t first = 0; first < experts->shape().count; first += together) {
    const Tensor stored =
        encoded(experts->device(), form, view, options_of(fast, shape_gain), stream, nullptr);
    experts->fill(layer, first, stored, stream_of(stream));
    view.data = static_cast<const std::byte*>(view.data) +
                form.rows * form.cols * static_cast<int64_t>(dtype_size(view.type));
  }
}

void restore_expert(int64_t handle, size_t layer, int64_t expert,
                    const std::vector<PlaceTuple>& arrays, uint64_t stream) {
  const Call call;
  const std::shared_ptr<DeviceExperts> experts = PlacedExperts::all().find(handle);
  experts->fill(layer, expert, checked_tensor(layer_of(*experts, layer), arrays),
                stream_of(stream));
}

GateFunction function_of(const std::string& name) {
  if (name == "silu") return GateFunction::silu;
  if (name == "gelu_tanh") return GateFunction::gelu_tanh;
  if (name == "relu") return GateFunction::relu;
  throw Error(ErrorCode::usage, "activation", name + ", GPUs have silu, gelu_tanh and relu");
}

// These have address, type, rows and stride of inputs, and where results go; addresses of weights
// and ids.
using RowsTuple = std::tuple<uint64_t, int, int64_t, int64_t, uint64_t>;
using ChoiceTuple = std::tuple<uint64_t, uint64_t, bool, int>;

void multiply_experts(int64_t handle, const RowsTuple& rows, const ChoiceTuple& choices,
                      const std::string& activation, const PlaceTuple& workspace, uint64_t stream) {
  const std::shared_ptr<DeviceExperts> experts = PlacedExperts::all().find(handle);
  const auto& [x, type, m, stride, out] = rows;
  DeviceExperts::Call work;
  work.x = {pointer(x), dtype_of(type), m, experts->shape().hidden(), stride};
  const auto& [weights, ids, wide, chosen] = choices;
  work.weights = pointer<const float>(weights);
  work.ids = pointer(ids);
  work.wide = wide;
  work.chosen = chosen;
  work.function = function_of(activation);
  work.out = pointer(out);
  const Call call;
  experts->multiply(work, memory_of(workspace), stream_of(stream));
}

void dequantize_expert(int64_t handle, size_t layer, int64_t expert, int type, uint64_t out,
                       uint64_t stream) {
  const std::shared_ptr<DeviceExperts> experts = PlacedExperts::all().find(handle);
  layer_of(*experts, layer);
  if (expert < 0 || expert >= experts->shape().count)
    throw Error(ErrorCode::usage, "experts", "there is no expert " + std::to_string(expert));
  const Call call;
  experts->dequantize(layer, expert, dtype_of(type), pointer(out), stream_of(stream));
}

}  // namespace

void bind_placed_layers(nb::module_& module) {
  module.def("device_types", &types);
  module.def("device_memory",
             [](const FormTuple& layer) { return DeviceOperator::memory_bytes(form_of(layer)); });
  module.def("device_encode", &encode);
  module.def("device_restore", &restore);
  module.def("experts_memory", [](const std::vector<FormTuple>& layers, int64_t count) {
    return DeviceExperts::memory_bytes(shape_of(layers, count));
  });
  module.def("experts_new", [](const std::vector<FormTuple>& layers, int64_t count, int device,
                               const PlaceTuple& memory) {
    const DeviceExperts::Shape shape = shape_of(layers, count);
    const Call call;
    return PlacedExperts::all().add(
        std::make_shared<DeviceExperts>(shape, device, memory_of(memory)));
  });
  module.def("experts_free", [](int64_t handle) { PlacedExperts::all().remove(handle); });
  module.def("experts_encode", &encode_experts);
  module.def("experts_restore", &restore_expert);
  module.def("experts_workspace", [](int64_t handle, int64_t rows, int chosen, int type) {
    return PlacedExperts::all().find(handle)->workspace_bytes(rows, chosen, dtype_of(type));
  });
  module.def("experts_multiply", &multiply_experts);
  module.def("experts_dequantize", &dequantize_expert);
  module.def("experts_padded", [](int64_t handle, size_t layer) {
    const std::shared_ptr<DeviceExperts> experts = PlacedExperts::all().find(handle);
    layer_of(*experts, layer);
    return experts->padded_cols(layer);
  });
}

}  // namespace walsh::python
