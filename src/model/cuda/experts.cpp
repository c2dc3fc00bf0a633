#include "model/cuda/experts.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/checked.h"
#include "model/cuda/input_meter.h"

namespace walsh {
namespace {

// A launch that prepares inputs takes at most this many rows.
constexpr int64_t kMostSlots = 65535;
constexpr int64_t kRowAlignment = 4;  // Plain rows begin at multiples of 4 floats.

cuda::Buffer array(int64_t count, uint64_t size, bool zeroed = false) {
  return cuda::Buffer(checked_mul(static_cast<uint64_t>(count), size, "workspaces of experts"),
                      zeroed);
}

// Returns the addresses of a matrix's stored arrays, null where it has none.
std::vector<const std::byte*> arrays_of(const Linear& linear) {
  const CudaWeights& weights = cuda_weights(linear);
  std::vector<const std::byte*> arrays{weights.dense.data.as<const std::byte>(),
                                       weights.bias.as<const std::byte>()};
  for (const cuda::Matrix& m : weights.pass)
    for (const cuda::Buffer* buffer : {&m.codes, &m.scales, &m.offsets, &m.row_factors, &m.table})
      arrays.push_back(buffer->as<const std::byte>());
  return arrays;
}

std::vector<const std::byte*> arrays_of(const Model& model, int layer, const ExpertsDesc& e,
                                        int64_t expert) {
  std::vector<const std::byte*> all;
  for (const int matrix : {e.gate(expert), e.up(expert), e.down(expert)})
    for (const std::byte* array : arrays_of(model.matrix(layer, matrix)))
      all.push_back(array);
  return all;
}

// Counts the inputs of experts over all layers: for each shape of int8 buffers the most that one
// layer needs (one per distinct form), and the widest plain rows.
class ShapeCount {
 public:
  void add(const LayerSteps& layer, const Input& input, std::span<const int> matrices,
           ModelSteps const& steps) {
    std::set<int> seen;
    std::map<Key, int> here;
    for (const int matrix : matrices) {
      const MatrixForm& form = layer.matrices[static_cast<size_t>(matrix)];
      const Format& format = *form.stored.format;
      if (format.dense) {
        const PreparedInput& rows = input.forms[static_cast<size_t>(form.input[0])];
        floats_ = std::max(floats_, rows.transform.cols);
      }
      for (int pass = 0; pass < format.passes && !format.dense; ++pass) {
        const PreparedInput& read = input.forms[static_cast<size_t>(form.input[pass])];
        const BufferShape& shape = steps.buffers[static_cast<size_t>(read.buffer)];
        if (shape.planes > 0 && seen.insert(form.input[pass]).second)
          ++here[{shape.cols, shape.planes, shape.group}];
      }
    }
    for (const auto& [shape, count] : here)
      most_[shape] = std::max(most_[shape], count);
  }

  int64_t floats() const { return floats_; }
  std::vector<BufferShape> shapes() const {
    std::vector<BufferShape> all;
    for (const auto& [shape, count] : most_)
      all.insert(all.end(), static_cast<size_t>(count),
                 {std::get<0>(shape), std::get<1>(shape), std::get<2>(shape)});
    return all;
  }

 private:
  using Key = std::tuple<int64_t, int, int>;

  std::map<Key, int> most_;
  int64_t floats_ = 0;
};

void prepare_forms(const cuda::InputSource& source, std::span<const cuda::InputForm> forms,
                   int64_t m, cuda::Stream stream) {
  for (size_t i = 0; i < forms.size(); i += cuda::kMaxForms)
    cuda::prepare(source, forms.subspan(i, std::min<size_t>(cuda::kMaxForms, forms.size() - i)), m,
                  stream);
}

}  // namespace

// All experts of a layer read what its first one reads.
ExpertShapes expert_shapes(const CudaSizes& sizes) {
  ExpertShapes shapes;
  ShapeCount inputs, of_down;
  const auto add = [&](const LayerSteps& layer, const step::Experts& s) {
    const ExpertsDesc& e = s.experts;
    shapes.count = std::max(shapes.count, e.count);
    shapes.chosen = std::max(shapes.chosen, e.chosen);
    shapes.width = std::max(shapes.width, e.width);
    const int first[] = {e.gate(0), e.up(0)}, last[] = {e.down(0)};
    inputs.add(layer, layer.inputs[static_cast<size_t>(s.input)], first, sizes.steps);
    of_down.add(layer, layer.inputs[static_cast<size_t>(s.gated_input)], last, sizes.steps);
  };
  for (const LayerSteps& layer : sizes.steps.layers)
    for (const Step& step : layer.steps)
      if (const auto* s = std::get_if<step::Experts>(&step.op)) add(layer, *s);
  shapes.inputs = inputs.shapes();
  shapes.of_down = of_down.shapes();
  shapes.input_floats = inputs.floats();
  shapes.down_floats = of_down.floats();
  return shapes;
}

int64_t most_expert_rows(const ExpertShapes& shapes) {
  return shapes.chosen == 0 ? kMostSlots : std::max<int64_t>(1, kMostSlots / shapes.chosen);
}

int64_t expert_stride(const Model& model, int layer, const ExpertsDesc& e) {
  const auto first = arrays_of(model, layer, e, 0);
  int64_t stride = 0;
  for (int64_t expert = 1; expert < e.count; ++expert) {
    const auto own = arrays_of(model, layer, e, expert);
    for (size_t i = 0; i < own.size() && own.size() == first.size(); ++i) {
      if (own[i] == nullptr && first[i] == nullptr) continue;
      const auto distance = static_cast<int64_t>(reinterpret_cast<uintptr_t>(own[i]) -
                                                 reinterpret_cast<uintptr_t>(first[i]));
      if (stride == 0) stride = distance;
      if (own[i] != nullptr && first[i] != nullptr && distance == expert * stride) continue;
      throw Error(ErrorCode::internal, "GPU experts", "arrays at different distances");
    }
    if (own.size() != first.size())
      throw Error(ErrorCode::internal, "GPU experts", "arrays of different kinds");
  }
  return stride;
}

CudaExperts::CudaExperts(const ExpertShapes& shapes, int64_t hidden, int64_t max_rows)
    : hidden_(hidden) {
  if (shapes.count == 0) return;
  const int64_t slots = max_rows * shapes.chosen;
  choices_ = array(slots, sizeof(int32_t));
  slot_ = array(slots, sizeof(int32_t));
  row_ = array(slots, sizeof(int32_t));
  weights_ = array(slots, sizeof(float));
  items_ = array(cuda::most_items(max_rows, shapes.chosen, shapes.count), sizeof(cuda::ExpertItem));
  gate_ = array(slots * shapes.width, sizeof(float));
  up_ = array(slots * shapes.width, sizeof(float));
  results_ = array(slots * hidden, sizeof(float));
  arrived_ = array(1 + cuda::kSumCounters, sizeof(int32_t), true);
  inputs_ = make_inputs(shapes.inputs, shapes.input_floats, max_rows);
  of_down_ = make_inputs(shapes.of_down, shapes.down_floats, slots);
}

CudaExperts::Inputs CudaExperts::make_inputs(const std::vector<BufferShape>& shapes, int64_t floats,
                                             int64_t rows) {
  Inputs inputs;
  for (const BufferShape& shape : shapes) {
    inputs.quantized.emplace_back(rows, round_up(shape.cols, int64_t{cuda::kPaddedColumns}),
                                  shape.group, shape.planes);
  }
  inputs.stride = round_up(floats, kRowAlignment);
  inputs.floats = array(rows * inputs.stride, sizeof(float));
  return inputs;
}

cuda::ExpertBatch CudaExperts::batch(const ExpertsDesc& experts, int64_t m) const {
  cuda::ExpertBatch batch;
  batch.plan = plan_;
  batch.slots = m * experts.chosen;
  batch.experts = experts.count;
  batch.items = items_.as<const cuda::ExpertItem>();
  return batch;
}

cuda::SlotArrays CudaExperts::slots() const {
  return {row_.as<int32_t>(), slot_.as<int32_t>(), items_.as<cuda::ExpertItem>()};
}

void CudaExperts::plan(const ExpertLayer& layer, int64_t m) {
  const ExpertsDesc& e = layer.desc();
  const bool tiles = cuda::have_tiles(*layer.matrix(e.gate(0)).format) &&
                     cuda::have_tiles(*layer.matrix(e.up(0)).format) &&
                     cuda::have_tiles(*layer.matrix(e.down(0)).format);
  plan_ = cuda::plan_experts(m, e.chosen, e.count, tiles);
}

cuda::RouteCall CudaExperts::route_call(const ExpertsDesc& experts, const float* logits,
                                        const float* bias, int64_t m) const {
  cuda::RouteCall call;
  call.rule = cuda::route_rule(experts);
  call.logits = logits;
  call.bias = bias;
  call.m = m;
  call.choices = choices_.as<int32_t>();
  call.weights = weights_.as<float>();
  return call;
}

CudaFront CudaExperts::front(const ExpertLayer& layer, const float* logits, const float* bias,
                             int64_t m) {
  plan(layer, m);
  const Input& input = layer.model.input(layer.layer, layer.step.input);
  front_forms_ = describe(layer, input, inputs_, first_products(layer.desc())).forms;
  front_route_.call = route_call(layer.desc(), logits, bias, m);
  front_route_.plan = plan_;
  front_route_.slots = slots();
  front_route_.arrived = arrived_.as<int32_t>();
  return {front_forms_, &front_route_};
}

void CudaExperts::route(const ExpertLayer& layer, const float* logits, const float* bias, int64_t m,
                        cuda::Stream stream) {
  plan(layer, m);
  cuda::route(route_call(layer.desc(), logits, bias, m), plan_, slots(), stream);
}

void CudaExperts::scale_weights(const ExpertsDesc& experts, const float* factors, int64_t m,
                                cuda::Stream stream) const {
  cuda::scale_weights(choices_.as<const int32_t>(), factors, m * experts.chosen,
                      weights_.as<float>(), stream);
}

std::array<CudaExperts::Product, 2> CudaExperts::first_products(const ExpertsDesc& experts) const {
  return {{{experts.gate(0), gate_.as<float>(), experts.width},
           {experts.up(0), up_.as<float>(), experts.width}}};
}

void CudaExperts::begin(const ExpertLayer& layer, const cuda::InputSource& source, bool prepared,
                        int64_t m, cuda::Stream stream, CudaInputMeter* meter) {
  cuda::ExpertBatch work = batch(layer.desc(), m);
  work.rows = row_.as<const int32_t>();
  const Input& input = layer.model.input(layer.layer, layer.step.input);
  if (meter != nullptr) {
    meter->choose({choices_.as<const int32_t>(), work.rows, work.slots, plan_.grouped()}, stream);
    meter->add_experts(input, source, m, false, stream);
  }
  const Described first = describe(layer, input, inputs_, first_products(layer.desc()));
  if (!prepared) prepare_forms(source, first.forms, m, stream);
  multiply(first, layer.stride, work, nullptr, stream);
}

// The sum follows the products, which compute it themselves where rows are few. Blocks that have
// few slots prepare their inputs themselves.
void CudaExperts::finish(const ExpertLayer& layer, cuda::ExpertSum call, cuda::Stream stream,
                         CudaInputMeter* meter) {
  const ExpertsDesc& e = layer.desc();
  const GateRule& rule = layer.step.gate;
  const int64_t slots = call.m * e.chosen;
  const std::array<Product, 1> last{{{e.down(0), results_.as<float>(), hidden_}}};
  const Input& gated = layer.model.input(layer.layer, layer.step.gated_input);
  const Described down = describe(layer, gated, of_down_, last);
  auto *gate = gate_.as<float>(), *up = up_.as<float>();
  call.results = results_.as<float>();
  call.slot = slot_.as<const int32_t>();
  if (!e.routing.of_input) call.weights = weights_.as<float>();
  call.width = hidden_;
  call.chosen = static_cast<int>(e.chosen);
  if (e.routing.of_input) {
    cuda::weigh_slots(gate, up, call.slot, weights_.as<const float>(), slots, e.width, stream);
  }
  const bool by_blocks = plan_.kind != cuda::ExpertPlan::Kind::tiles && down.plain.empty();
  cuda::ExpertTail tail;
  tail.source.x = gate;
  tail.source.up = up;
  tail.source.ldx = tail.source.width = e.width;
  tail.source.function = rule.function;
  if (rule.function == GateFunction::clamped_silu) {
    tail.source.function = GateFunction::silu;
    tail.clamp = {true, rule.slope, rule.limit};
  }
  tail.forms = down.forms;
  tail.makes_inputs = by_blocks && cuda::can_make_inputs(down.forms);
  if (!tail.makes_inputs) {
    if (tail.clamp.used) cuda::clamp_gates(gate, up, slots * e.width, tail.clamp, stream);
    prepare_forms(tail.source, down.forms, slots, stream);
    if (meter != nullptr) meter->add_experts(gated, tail.source, slots, true, stream);
  }
  // The block that ends last would have to sum up most slots, so more rows get a launch for the
  // sum.
  const bool sums = by_blocks && call.m <= cuda::kSingleRows;
  if (sums) tail.sum = {call, row_.as<const int32_t>(), arrived_.as<int32_t>() + 1};
  multiply(down, layer.stride, batch(e, call.m), by_blocks ? &tail : nullptr, stream);
  if (!sums) cuda::sum_experts(call, stream);
}

CudaExperts::Described CudaExperts::describe(const ExpertLayer& layer, const Input& input,
                                             Inputs& inputs, std::span<const Product> products) {
  Described all;
  std::vector<Product> coded;
  for (const Product& product : products) {
    const Linear& linear = layer.matrix(product.matrix);
    if (!linear.is_dense()) {
      coded.push_back(product);
      continue;
    }
    if (all.plain.empty()) {
      cuda::InputForm& form = all.forms.emplace_back();
      form.rotation.kind = RotationKind::none;
      form.padded = linear.cols;
      form.rows = inputs.floats.as();
      form.stride = inputs.stride;
    }
    const CudaWeights& weights = cuda_weights(linear);
    all.plain.push_back({&weights.dense, inputs.floats.as<float>(), inputs.stride,
                         weights.bias.empty() ? nullptr : weights.bias.as<float>(), product.y,
                         product.ldy, false});
  }
  if (!coded.empty()) describe_coded(layer, input, inputs, coded, all);
  return all;
}

// Makes every form that one of the matrices reads once, in the first workspace of its shape that is
// still free.
void CudaExperts::describe_coded(const ExpertLayer& layer, const Input& input, Inputs& inputs,
                                 std::span<const Product> products, Described& all) {
  std::vector<cuda::Activations*> of_form(input.forms.size());
  const auto workspace = [&](const BufferShape& shape) -> cuda::Activations& {
    for (cuda::Activations& a : inputs.quantized) {
      const bool same = a.cols == round_up(shape.cols, int64_t{cuda::kPaddedColumns}) &&
                        a.group == shape.group && a.planes == shape.planes;
      if (same && std::find(of_form.begin(), of_form.end(), &a) == of_form.end()) return a;
    }
    throw Error(ErrorCode::internal, "GPU experts", "a form that was not planned");
  };
  for (const Product& product : products) {
    const Linear& linear = layer.matrix(product.matrix);
    const CudaWeights& weights = cuda_weights(linear);
    cuda::Matmul& to = all.coded.emplace_back();
    for (size_t pass = 0; pass < weights.pass.size(); ++pass) {
      const auto index = static_cast<size_t>(linear.input[pass]);
      const PreparedInput& form = input.forms[index];
      if (of_form[index] == nullptr) {
        of_form[index] = &workspace({form.transform.cols, form.planes, form.group});
        cuda::InputForm& next = all.forms.emplace_back();
        next.rotation = weights.rotation[pass];
        next.padded = form.transform.cols;
        next.out = of_form[index];
      }
      to.pass[pass] = &weights.pass[pass];
      to.input[pass] = of_form[index];
    }
    to.bias = weights.bias.empty() ? nullptr : weights.bias.as<float>();
    to.y = product.y;
    to.ldy = product.ldy;
  }
}

// All plain products of one type are multiplied together.
void CudaExperts::multiply(const Described& products, int64_t stride,
                           const cuda::ExpertBatch& batch, const cuda::ExpertTail* tail,
                           cuda::Stream stream) {
  if (!products.coded.empty())
    cuda::multiply_experts(std::span<const cuda::Matmul>(products.coded), stride, batch, stream,
                           tail);
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    std::vector<cuda::DenseMatmul> some;
    for (const cuda::DenseMatmul& product : products.plain)
      if (product.weights->type == type) some.push_back(product);
    if (!some.empty())
      cuda::multiply_experts(std::span<const cuda::DenseMatmul>(some), stride, batch, stream);
  }
}

}  // namespace walsh
