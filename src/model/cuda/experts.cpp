#include "model/cuda/experts.h"

#include <algorithm>
#include <array>

#include "base/checked.h"

namespace walsh {
namespace {

constexpr int64_t kMostSlots = 65535;  // rows of a launch that prepares inputs
constexpr int64_t kRowAlignment = 4;   // floats of plain rows

cuda::Buffer array(int64_t count, uint64_t size) {
  return cuda::Buffer(checked_mul(static_cast<uint64_t>(count), size, "workspaces of experts"));
}

// Where the arrays of a matrix begin; null where it has none.
std::vector<const std::byte*> arrays_of(const Linear& linear) {
  const CudaWeights& weights = cuda_weights(linear);
  std::vector<const std::byte*> arrays{weights.dense.data.as<const std::byte>(),
                                       weights.bias.as<const std::byte>()};
  for (const cuda::Matrix& m : weights.pass)
    for (const cuda::Buffer* buffer : {&m.codes, &m.scales, &m.offsets, &m.row_factors, &m.table})
      arrays.push_back(buffer->as<const std::byte>());
  return arrays;
}

std::vector<const std::byte*> arrays_of(const ExpertsDesc& e, const Layer& layer, int64_t expert) {
  std::vector<const std::byte*> all;
  for (const int matrix : {e.gate(expert), e.up(expert), e.down(expert)})
    for (const std::byte* array : arrays_of(layer.matrix(matrix)))
      all.push_back(array);
  return all;
}

}  // namespace

int64_t most_expert_rows(const CudaShapes::Experts& experts) {
  return experts.chosen == 0 ? kMostSlots : std::max<int64_t>(1, kMostSlots / experts.chosen);
}

int64_t expert_stride(const LayerDesc& desc, const Layer& layer) {
  const ExpertsDesc& e = desc.experts;
  const auto first = arrays_of(e, layer, 0);
  int64_t stride = 0;
  for (int64_t expert = 1; expert < e.count; ++expert) {
    const auto own = arrays_of(e, layer, expert);
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

CudaExperts::CudaExperts(const CudaShapes::Experts& shapes, int64_t hidden, int64_t max_rows)
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
  inputs_ = make_inputs(shapes.inputs, shapes.input_floats, max_rows);
  gated_ = make_inputs(shapes.gated, shapes.gated_floats, slots);
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

void CudaExperts::route(const LayerDesc& desc, const Layer& layer, const float* logits,
                        const float* bias, int64_t m, cuda::Stream stream) {
  const ExpertsDesc& e = desc.experts;
  const bool tiles = cuda::have_tiles(*layer.matrix(e.gate(0)).format) &&
                     cuda::have_tiles(*layer.matrix(e.up(0)).format) &&
                     cuda::have_tiles(*layer.matrix(e.down(0)).format);
  plan_ = cuda::plan_experts(m, e.chosen, e.count, tiles);
  cuda::RouteCall call;
  call.rule = cuda::route_rule(e);
  call.logits = logits;
  call.bias = bias;
  call.m = m;
  call.choices = choices_.as<int32_t>();
  call.weights = weights_.as<float>();
  cuda::route(call, plan_, {row_.as<int32_t>(), slot_.as<int32_t>(), items_.as<cuda::ExpertItem>()},
              stream);
}

void CudaExperts::run(const LayerDesc& desc, const Layer& layer, int64_t stride,
                      const cuda::InputSource& source, int64_t m, cuda::Stream stream) {
  const ExpertsDesc& e = desc.experts;
  const int64_t slots = m * e.chosen;
  auto *gate = gate_.as<float>(), *up = up_.as<float>();
  cuda::ExpertBatch work = batch(e, m);
  work.rows = row_.as<const int32_t>();
  const std::array<Product, 2> first{{{e.gate(0), gate, e.width}, {e.up(0), up, e.width}}};
  multiply(desc, layer, stride, inputs_, source, m, work, first, stream);
  cuda::InputSource gated;
  gated.x = gate;
  gated.up = up;
  gated.ldx = gated.width = e.width;
  gated.function = desc.mlp.function;
  if (e.routing.of_input) {
    cuda::weigh_slots(gate, up, slot_.as<const int32_t>(), weights_.as<const float>(), slots,
                      e.width, stream);
  }
  if (gated.function == GateFunction::clamped_silu) {
    cuda::clamp_gates(gate, up, slots * e.width, desc.mlp.slope, desc.mlp.limit, stream);
    gated.function = GateFunction::silu;
  }
  work.rows = nullptr;
  const std::array<Product, 1> last{{{e.down(0), results_.as<float>(), hidden_}}};
  multiply(desc, layer, stride, gated_, gated, slots, work, last, stream);
}

void CudaExperts::multiply(const LayerDesc& desc, const Layer& layer, int64_t stride,
                           Inputs& inputs, const cuda::InputSource& source, int64_t m,
                           const cuda::ExpertBatch& work, std::span<const Product> products,
                           cuda::Stream stream) {
  std::vector<Product> coded;
  for (const Product& product : products) {
    if (layer.matrix(product.matrix).is_dense()) continue;
    coded.push_back(product);
  }
  if (!coded.empty()) multiply_coded(desc, layer, stride, inputs, source, m, work, coded, stream);
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    std::vector<Product> plain;
    for (const Product& product : products) {
      const Linear& linear = layer.matrix(product.matrix);
      if (linear.is_dense() && linear.format->dtype == type) plain.push_back(product);
    }
    if (!plain.empty()) multiply_plain(layer, stride, inputs, source, m, work, plain, stream);
  }
}

// Every form that one of the matrices reads is made once, in the first workspace of its shape that
// no other one has.
void CudaExperts::multiply_coded(const LayerDesc& desc, const Layer& layer, int64_t stride,
                                 Inputs& inputs, const cuda::InputSource& source, int64_t m,
                                 const cuda::ExpertBatch& work, std::span<const Product> products,
                                 cuda::Stream stream) {
  const Input& input = layer.input(desc.matrix(products.front().matrix).input);
  std::vector<cuda::Activations*> of_form(input.forms.size());
  std::vector<cuda::InputForm> forms;
  const auto workspace = [&](const BufferShape& shape) -> cuda::Activations& {
    for (cuda::Activations& a : inputs.quantized) {
      const bool same = a.cols == round_up(shape.cols, int64_t{cuda::kPaddedColumns}) &&
                        a.group == shape.group && a.planes == shape.planes;
      if (same && std::find(of_form.begin(), of_form.end(), &a) == of_form.end()) return a;
    }
    throw Error(ErrorCode::internal, "GPU experts", "a form that was not planned");
  };
  std::vector<cuda::Matmul> all;
  for (const Product& product : products) {
    const Linear& linear = layer.matrix(product.matrix);
    const CudaWeights& weights = cuda_weights(linear);
    cuda::Matmul& to = all.emplace_back();
    for (size_t pass = 0; pass < weights.pass.size(); ++pass) {
      const auto index = static_cast<size_t>(linear.input[pass]);
      const PreparedInput& form = input.forms[index];
      if (of_form[index] == nullptr) {
        of_form[index] = &workspace({form.transform.cols, form.planes, form.group});
        cuda::InputForm& next = forms.emplace_back();
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
  const std::span<const cuda::InputForm> made(forms);
  for (size_t i = 0; i < forms.size(); i += cuda::kMaxForms)
    cuda::prepare(source, made.subspan(i, std::min<size_t>(cuda::kMaxForms, forms.size() - i)), m,
                  stream);
  cuda::multiply_experts(std::span<const cuda::Matmul>(all), stride, work, stream);
}

void CudaExperts::multiply_plain(const Layer& layer, int64_t stride, Inputs& inputs,
                                 const cuda::InputSource& source, int64_t m,
                                 const cuda::ExpertBatch& work, std::span<const Product> products,
                                 cuda::Stream stream) {
  cuda::InputForm form;
  form.rotation.kind = RotationKind::none;
  form.padded = source.width;
  form.rows = inputs.floats.as();
  form.stride = inputs.stride;
  cuda::prepare(source, {&form, 1}, m, stream);
  std::vector<cuda::DenseMatmul> all;
  for (const Product& product : products) {
    const CudaWeights& weights = cuda_weights(layer.matrix(product.matrix));
    all.push_back({&weights.dense, inputs.floats.as<float>(), inputs.stride,
                   weights.bias.empty() ? nullptr : weights.bias.as<float>(), product.y,
                   product.ldy, false});
  }
  cuda::multiply_experts(std::span<const cuda::DenseMatmul>(all), stride, work, stream);
}

void CudaExperts::sum(const LayerDesc& desc, cuda::ExpertSum call, cuda::Stream stream) const {
  call.results = results_.as<float>();
  call.slot = slot_.as<const int32_t>();
  if (!desc.experts.routing.of_input) call.weights = weights_.as<float>();
  call.shared = desc.mlp.width > 0;
  call.width = hidden_;
  call.chosen = static_cast<int>(desc.experts.chosen);
  cuda::sum_experts(call, stream);
}

}  // namespace walsh
