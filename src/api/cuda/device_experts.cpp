#include "api/device_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "api/cuda/placed_weights.h"
#include "base/checked.h"
#include "base/cuda/memory_pool.h"
#include "kernels/cuda/experts/expert_product.h"
#include "kernels/cuda/rows/foreign_rows.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// At most this many slots are multiplied together: results of more would take too much memory.
constexpr int64_t kMostSlots = 16384;

int64_t most_rows(int chosen) {
  return std::max<int64_t>(1, kMostSlots / std::max(chosen, 1));
}

[[noreturn]] void refuse(const char* what, const std::string& reason) {
  throw Error(ErrorCode::usage, what, reason);
}

// Returns the layers of one expert. Their memory lies in the order of the layers.
std::vector<PlacedWeights> allocate(const DeviceExperts::Shape& shape) {
  std::vector<PlacedWeights> layers;
  for (const LayerForm& form : shape.layers)
    layers.emplace_back(form);
  return layers;
}

uint64_t expert_bytes(const DeviceExperts::Shape& shape) {
  cuda::MemoryPool measure;
  const cuda::MemoryPool::Scope scope(measure);
  allocate(shape);
  return measure.used();
}

void check(const DeviceExperts::Shape& shape) {
  if (shape.layers.size() < 2 || shape.count < 1)
    refuse("experts", fmt::format("{} layers of {} experts", shape.layers.size(), shape.count));
  int64_t rows = 0;
  for (size_t i = 0; i + 1 < shape.layers.size(); ++i) {
    rows += shape.layers[i].rows;
    if (shape.layers[i].cols != shape.hidden())
      refuse("experts", fmt::format("gate or up of {} columns, down of {} rows",
                                    shape.layers[i].cols, shape.hidden()));
  }
  if (rows == 2 * shape.width()) return;
  refuse("experts", fmt::format("gate and up of {} rows, down of {} columns", rows, shape.width()));
}

// Holds the forms of an input that layers read: each has its own rotation, padding or groups.
struct Inputs {
  std::vector<cuda::Activations> values;
  std::vector<cuda::InputForm> forms;  // each describes the value of the same index

  // Finds the form of a pass, or adds it with memory for `rows` vectors.
  size_t add(const PlacedWeights& w, size_t pass, int64_t rows) {
    const Rotation& rotation = w.form.rotation[pass];
    for (size_t i = 0; i < forms.size(); ++i) {
      if (forms[i].rotation == rotation && forms[i].padded == w.padded &&
          values[i].group == w.group(pass) && values[i].planes == w.planes())
        return i;
    }
    values.emplace_back(rows, w.quantized_cols(), w.group(pass), w.planes());
    forms.emplace_back();
    forms.back().rotation = rotation;
    forms.back().padded = w.padded;
    return forms.size() - 1;
  }
  // Calls make(forms) for as many forms as a launch makes.
  template <typename Make>
  void each_launch(const Make& make) const {
    const std::span<const cuda::InputForm> all(forms);
    for (size_t i = 0; i < all.size(); i += cuda::kMaxForms)
      make(all.subspan(i, std::min<size_t>(cuda::kMaxForms, all.size() - i)));
  }
};

// Describes a product of every slot with a layer of its expert.
struct LayerProduct {
  const PlacedWeights* weights = nullptr;
  std::vector<size_t> input;  // each pass reads the input of this index
  float* y = nullptr;
  int64_t ldy = 0;
};

std::vector<cuda::Matmul> matmuls(std::span<const LayerProduct> products, const Inputs& inputs) {
  std::vector<cuda::Matmul> result;
  for (const LayerProduct& product : products) {
    cuda::Matmul& to = result.emplace_back();
    for (size_t p = 0; p < product.input.size(); ++p) {
      to.pass[p] = &product.weights->pass[p];
      to.input[p] = &inputs.values[product.input[p]];
    }
    to.y = product.y;
    to.ldy = product.ldy;
  }
  return result;
}

cuda::Buffer array(int64_t count, size_t size) {
  return cuda::Buffer(checked_mul(static_cast<uint64_t>(count), size, "workspaces of experts"));
}

}  // namespace

struct DeviceExperts::Impl {
  Shape shape;
  int device = 0;
  bool tiles = false;  // all layers have tile kernels
  int64_t stride = 0;  // an expert lies this many bytes in front of the next one
  std::vector<std::vector<PlacedWeights>> experts;

  cuda::ExpertPlan plan(int64_t rows, int chosen) const {
    return cuda::plan_experts(rows, chosen, shape.count, tiles);
  }
  void multiply(const Call& call, const DeviceMemory& workspace, cuda::Stream stream) const;
};

namespace {

// Holds the buffers that a call for some rows needs.
struct Work {
  Inputs first, last;
  std::vector<LayerProduct> to_gates;
  LayerProduct to_results;
  cuda::Buffer choices, row, slot, items, gates, results, sums;

  Work(std::span<const PlacedWeights> layers, const DeviceExperts::Shape& shape,
       const cuda::ExpertPlan& plan, int64_t rows, int chosen, bool rounded)
      : choices(array(rows * chosen, sizeof(int32_t))),
        row(array(rows * chosen, sizeof(int32_t))),
        slot(array(rows * chosen, sizeof(int32_t))),
        items(array(plan.places(rows * chosen, shape.count), sizeof(cuda::ExpertItem))),
        gates(array(rows * chosen * 2 * shape.width(), sizeof(float))),
        results(array((rows * chosen + 1) * shape.hidden(), sizeof(float))) {
    if (rounded) sums = array(rows * shape.hidden(), sizeof(float));
    float* y = gates.as<float>();
    for (const PlacedWeights& w : layers.first(layers.size() - 1)) {
      to_gates.push_back(product(first, w, rows, y, 2 * shape.width()));
      y += w.form.rows;
    }
    to_results = product(last, layers.back(), rows * chosen, results.as<float>(), shape.hidden());
    for (Inputs* inputs : {&first, &last})
      for (size_t i = 0; i < inputs->forms.size(); ++i)
        inputs->forms[i].out = &inputs->values[i];
  }
  cuda::SlotArrays slots() const {
    return {row.as<int32_t>(), slot.as<int32_t>(), items.as<cuda::ExpertItem>()};
  }

 private:
  static LayerProduct product(Inputs& inputs, const PlacedWeights& w, int64_t rows, float* y,
                              int64_t ldy) {
    LayerProduct made{&w, {}, y, ldy};
    for (size_t p = 0; p < w.pass.size(); ++p)
      made.input.push_back(inputs.add(w, p, rows));
    return made;
  }
};

// Returns the rows of one expert in a tensor of several.
Tensor rows_of(const Tensor& all, int64_t first, int64_t rows) {
  Tensor part = all;
  part.rows = rows;
  for (int p = 0; p < all.format->passes; ++p) {
    for (const PassField& field : pass_fields(*all.format, p, all.rows, all.cols)) {
      const std::span<const std::byte> whole = all.pass[p].*field.array;
      part.pass[p].*field.array = whole.subspan(static_cast<size_t>(first) * field.row_bytes,
                                                static_cast<size_t>(rows) * field.row_bytes);
    }
  }
  return part;
}

}  // namespace

uint64_t DeviceExperts::memory_bytes(const Shape& shape) {
  check(shape);
  return checked_mul(expert_bytes(shape), static_cast<uint64_t>(shape.count), "experts");
}

DeviceExperts::DeviceExperts(const Shape& shape, int device, const DeviceMemory& memory)
    : impl_(std::make_unique<Impl>()) {
  check(shape);
  for (const LayerForm& form : shape.layers)
    refuse_unsupported(form, device);
  cuda::use_device(device);
  impl_->shape = shape;
  impl_->device = device;
  impl_->tiles = std::all_of(shape.layers.begin(), shape.layers.end(),
                             [](const LayerForm& form) { return cuda::have_tiles(*form.format); });
  impl_->stride = static_cast<int64_t>(expert_bytes(shape));
  cuda::MemoryPool lent(memory.memory, memory.bytes);
  const cuda::MemoryPool::Scope scope(lent);
  for (int64_t expert = 0; expert < shape.count; ++expert)
    impl_->experts.push_back(allocate(shape));
}

DeviceExperts::~DeviceExperts() = default;

int DeviceExperts::device() const {
  return impl_->device;
}

const DeviceExperts::Shape& DeviceExperts::shape() const {
  return impl_->shape;
}

int64_t DeviceExperts::padded_cols(size_t layer) const {
  return impl_->experts[0].at(layer).padded;
}

bool DeviceExperts::encodes_together(size_t layer) const {
  const LayerForm& form = impl_->shape.layers.at(layer);
  for (int p = 0; p < form.format->passes; ++p)
    for (const PassField& field : pass_fields(*form.format, p, form.rows, form.cols))
      if (field.rows != form.rows || field.matrix_rows != 1) return false;
  return true;
}

void DeviceExperts::fill(size_t layer, int64_t first, const Tensor& stored, cuda::Stream stream) {
  const LayerForm& form = impl_->shape.layers.at(layer);
  const int64_t count = stored.rows / form.rows;
  if (stored.format != form.format || stored.cols != form.cols ||
      count * form.rows != stored.rows || first < 0 || count < 1 ||
      first + count > impl_->shape.count || (count > 1 && !encodes_together(layer))) {
    refuse("experts",
           fmt::format("weights {} x {} from expert {} on", stored.rows, stored.cols, first));
  }
  DeviceLoader::Impl& loader = DeviceLoader::of(impl_->device).impl();
  const std::lock_guard lock(loader.mutex);
  cuda::use_device(impl_->device);
  cuda::synchronize(stream);
  for (int64_t i = 0; i < count; ++i) {
    const PlacedWeights& to = impl_->experts[static_cast<size_t>(first + i)][layer];
    to.fill(count == 1 ? stored : rows_of(stored, i * form.rows, form.rows), loader.uploader,
            loader.staging);
  }
  loader.uploader.synchronize();
}

uint64_t DeviceExperts::workspace_bytes(int64_t rows, int chosen, DType type) const {
  const int64_t together = std::min(rows, most_rows(chosen));
  cuda::MemoryPool measure;
  const cuda::MemoryPool::Scope scope(measure);
  // The last rows may be few, for which the plan is another one.
  const int64_t rest = rows % std::max<int64_t>(together, 1);
  uint64_t most = 0, before = 0;
  for (const int64_t some : {together, rest}) {
    if (some == 0) continue;
    const Work unused(impl_->experts[0], impl_->shape, impl_->plan(some, chosen), some, chosen,
                      type != DType::f32);
    most = std::max(most, measure.used() - before);
    before = measure.used();
  }
  return most;
}

void DeviceExperts::multiply(const Call& call, const DeviceMemory& workspace,
                             cuda::Stream stream) const {
  if (call.x.cols != impl_->shape.hidden()) {
    refuse("input",
           fmt::format("rows of {} values, expected {}", call.x.cols, impl_->shape.hidden()));
  }
  if (call.chosen < 1) refuse("ids", "no choices");
  cuda::select_device(impl_->device);
  const int64_t step = most_rows(call.chosen);
  for (int64_t row = 0; row < call.x.rows; row += step) {
    const auto moved = [&](const void* from, int64_t bytes) {
      return static_cast<const std::byte*>(from) + row * bytes;
    };
    const auto size = static_cast<int64_t>(dtype_size(call.x.type));
    Call part = call;
    part.x.data = moved(call.x.data, call.x.stride * size);
    part.x.rows = std::min(step, call.x.rows - row);
    part.weights += row * call.chosen;
    part.ids = moved(call.ids, int64_t{call.chosen} * (call.wide ? 8 : 4));
    part.out = static_cast<std::byte*>(call.out) + row * impl_->shape.hidden() * size;
    impl_->multiply(part, workspace, stream);
  }
}

void DeviceExperts::Impl::multiply(const Call& call, const DeviceMemory& workspace,
                                   cuda::Stream stream) const {
  const int64_t rows = call.x.rows, slots = rows * call.chosen, width = shape.width(),
                hidden = shape.hidden();
  const bool rounded = call.x.type != DType::f32;
  cuda::MemoryPool lent(workspace.memory, workspace.bytes);
  const cuda::MemoryPool::Scope scope(lent);
  cuda::ExpertBatch batch;
  batch.plan = plan(rows, call.chosen);
  batch.slots = slots;
  batch.experts = shape.count;
  const Work work(experts[0], shape, batch.plan, rows, call.chosen, rounded);
  batch.items = work.items.as<const cuda::ExpertItem>();

  cuda::GivenChoices given;
  given.ids = call.ids;
  given.wide = call.wide;
  given.m = rows;
  given.chosen = call.chosen;
  given.experts = static_cast<int>(shape.count);
  given.choices = work.choices.as<int32_t>();
  given.zeros = work.results.as<float>() + slots * hidden;
  given.width = hidden;
  cuda::group_given(given, batch.plan, work.slots(), stream);

  work.first.each_launch([&](std::span<const cuda::InputForm> forms) {
    cuda::prepare(cuda::ForeignRows{call.x.data, call.x.type, call.x.stride, call.x.cols}, forms,
                  rows, stream);
  });
  cuda::ExpertBatch by_row = batch;
  by_row.rows = work.row.as<const int32_t>();
  cuda::multiply_experts(std::span<const cuda::Matmul>(matmuls(work.to_gates, work.first)), stride,
                         by_row, stream);

  cuda::ExpertTail tail;
  tail.source.x = work.gates.as<const float>();
  tail.source.up = tail.source.x + width;
  tail.source.ldx = 2 * width;
  tail.source.width = width;
  tail.source.function = call.function;
  tail.forms = work.last.forms;
  tail.makes_inputs =
      batch.plan.kind != cuda::ExpertPlan::Kind::tiles && cuda::can_make_inputs(work.last.forms);
  if (!tail.makes_inputs) {
    work.last.each_launch([&](std::span<const cuda::InputForm> forms) {
      cuda::prepare(tail.source, forms, slots, stream);
    });
  }
  cuda::multiply_experts(std::span<const cuda::Matmul>(matmuls({&work.to_results, 1}, work.last)),
                         stride, batch, stream, tail.makes_inputs ? &tail : nullptr);

  cuda::ExpertSum sum;
  sum.results = work.results.as<const float>();
  sum.slot = work.slot.as<const int32_t>();
  sum.weights = call.weights;
  sum.out = rounded ? work.sums.as<float>() : static_cast<float*>(call.out);
  sum.m = rows;
  sum.width = hidden;
  sum.chosen = call.chosen;
  cuda::sum_experts(sum, stream);
  if (rounded)
    cuda::round_rows({sum.out, hidden, rows, hidden, call.out, call.x.type, hidden}, stream);
}

void DeviceExperts::dequantize(size_t layer, int64_t expert, DType type, void* out,
                               cuda::Stream stream) const {
  cuda::select_device(impl_->device);
  impl_->experts.at(static_cast<size_t>(expert)).at(layer).dequantize(type, out, stream);
}

}  // namespace walsh
