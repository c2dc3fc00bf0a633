#include "model/cuda/one_launch.h"

#include <algorithm>
#include <array>
#include <utility>

namespace walsh {
namespace {

// Returns whether the attention phase of a program can do all that the step does.
bool is_phase(const step::PrepareHeads& heads) {
  return !heads.norms_all_heads() && !heads.options.norms_turned && !heads.unit().present() &&
         !heads.latent.present() && heads.key.present() && !heads.values_are_keys &&
         !heads.value_norm().present();
}

// Names the matrices of one expert, or of the shared one.
struct ExpertMatrices {
  const Linear *gate, *up, *down;

  bool are_coded() const { return !gate->is_dense() && !up->is_dense() && !down->is_dense(); }
};

cuda::ExpertStep::Part part_of(int64_t width, std::span<const cuda::Matmul> firsts,
                               const CudaLinear::Coded& last) {
  cuda::ExpertStep::Part part;
  part.width = width;
  part.gate = firsts[0];
  part.up = firsts[1];
  part.down = last.products[0];
  part.down_form = last.forms[0];
  return part;
}

// Returns the matrix of a product that writes these rows, or null.
const Linear* output_to(Rows rows, const step::Product& s, const Model& model, int layer) {
  for (const step::Product::Output& output : s.outputs)
    if (output.to.rows == rows) return &model.matrix(layer, output.matrix);
  return nullptr;
}

}  // namespace

cuda::PersistentProgram OneLaunch::layers() {
  const Model& model = operands_.model();
  if (!cuda::PersistentProgram::available()) return {};
  // Layers of such a part are interrupted by the other part, so they cannot be one launch.
  const auto& layers = model.config.layers;
  if (std::any_of(layers.begin(), layers.end(), experts_elsewhere)) return {};
  program_ = cuda::PersistentProgram(rows_);
  for (const LayerSteps& layer : model.steps.layers) {
    waiting_ = {};
    for (const Step& step : layer.steps)
      if (!add_step(step)) return {};
  }
  if (!program_.finish()) return {};
  return std::move(program_);
}

cuda::PersistentProgram OneLaunch::head() {
  program_ = cuda::PersistentProgram(rows_);
  const std::vector<Step>& steps = operands_.model().steps.head.steps;
  if (steps.empty() || !add_step(steps.front()) || !program_.finish()) return {};
  return std::move(program_);
}

bool OneLaunch::add(const step::Product& s) {
  const Model& model = operands_.model();
  if (waiting_.experts != nullptr) {  // Only the shared expert's down comes in between.
    waiting_.shared_down = &s;
    return true;
  }
  if (output_to(Rows::router, s, model, layer_) != nullptr) {
    waiting_.router = &s;
    return true;
  }
  const cuda::InputSource source = operands_.source(s, layer_, 0);
  std::vector<CudaMatmul> items;
  const std::vector<CudaMatmul> all = operands_.products(s, layer_, 0);
  for (size_t i = 0; i < all.size(); ++i) {
    const Rows to = s.outputs[i].to.rows;
    if (to == Rows::decay) {
      waiting_.decay = all[i].linear;
      waiting_.decay_source = source;
    } else if (to == Rows::strength) {
      waiting_.strength = all[i].linear;
    } else {
      items.push_back(all[i]);
    }
  }
  return multiply(model.input(layer_, s.input), source, items);
}

bool OneLaunch::add(const step::PrepareHeads& s) {
  waiting_.heads = &s;
  return true;
}

// Adds attention. The product before it has put queries beside their gates, where the phase reads
// them.
bool OneLaunch::add(const step::Attend& s) {
  const step::PrepareHeads& heads = *waiting_.heads;
  if (!is_phase(heads)) return false;
  cuda::RopeCall rope = operands_.rope_call(heads, layer_, rows_);
  rope.q = operands_.row(heads.query);
  const CudaMemory& memory = operands_.memory();
  const bool gated = heads.gates.present();
  if (!memory.cache.coded) {
    return program_.attend(rope, operands_.attention_call(s, layer_, 0, rows_),
                           memory.attention_scratch, gated);
  }
  if (gated) return false;
  const cuda::CodedView cache = memory.cache.coded->view(s.cache);
  cuda::AttentionRows rows = operands_.attention_rows(s, layer_, rows_);
  return program_.attend_coded(rope, rows, cache, cache.keys, cache.values,
                               memory.attention_scratch);
}

bool OneLaunch::add(const step::Convolve& s) {
  if (s.gated() || s.net.additive) return false;
  waiting_.convolve = &s;
  return true;
}

bool OneLaunch::add(const step::DeltaRule& s) {
  waiting_.rule = &s;
  return true;
}

// Nothing is added: the attention phase applies gates itself, and the phase of a delta net does all
// that lies between its products.
bool OneLaunch::add(const step::GateHeads& s) {
  if (waiting_.rule == nullptr) return true;
  if (!is_dense_without_bias(*waiting_.decay) || !is_dense_without_bias(*waiting_.strength))
    return false;
  const Operand& mixed = waiting_.rule->to;
  cuda::DeltaStep step;
  step.net = operands_.memory().delta_net.step_call(
      layer_, operands_.delta_rows(*waiting_.convolve, mixed, 1));
  step.source = waiting_.decay_source;
  step.decay = &cuda_weights(*waiting_.decay).dense;
  step.strength = &cuda_weights(*waiting_.strength).dense;
  step.gates = operands_.head_gates(s, layer_, 0);
  step.mixed = operands_.row(mixed);
  return program_.step_delta(step);
}

bool OneLaunch::add(const step::Route& s) {
  waiting_.route = &s;
  return true;
}

bool OneLaunch::add(const step::Experts& s) {
  waiting_.experts = &s;
  return true;
}

// Adds router, choice, products and sum as one phase. Returns false for what such a phase cannot
// do: weights of inputs instead of results, norms and factors after the sum, codes in two passes,
// or a shared expert that another part computes.
bool OneLaunch::add(const step::AddExperts& s) {
  const Model& model = operands_.model();
  const step::Experts& of = *waiting_.experts;
  const step::Product& first = *waiting_.router;
  const step::Product* const last = waiting_.shared_down;
  const ExpertsDesc& e = of.experts;
  const auto matrix = [&](int index) { return &model.matrix(layer_, index); };
  const Linear& router = *output_to(Rows::router, first, model, layer_);
  const Linear* const share = output_to(Rows::share, first, model, layer_);
  const ExpertMatrices each{matrix(e.gate(0)), matrix(e.up(0)), matrix(e.down(0))};
  ExpertMatrices shared = each;
  if (last != nullptr) {
    shared = {output_to(Rows::gate, first, model, layer_),
              output_to(Rows::up, first, model, layer_), matrix(last->outputs.front().matrix)};
  }
  if (!linear_.has_steps() || e.routing.of_input || e.apart() || !s.to.present() || s.scale != 1 ||
      s.shared != (last != nullptr) || !each.are_coded() || !shared.are_coded() ||
      !is_dense_without_bias(router) || (share != nullptr && !is_dense_without_bias(*share)))
    return false;
  cuda::ExpertStep step;
  step.source = operands_.source(of.from, of.norm, layer_, 0);
  step.router = &cuda_weights(router).dense;
  if (share != nullptr) step.share = &cuda_weights(*share).dense;
  step.rule = cuda::route_rule(e);
  step.bias = operands_.vector(layer_, waiting_.route->bias);
  step.function = of.gate.function;
  step.stride = operands_.experts(of, layer_).stride;
  step.stream = operands_.row(s.to);
  // Gates and ups of routed and shared experts read forms of one activation.
  const std::array<CudaMatmul, 4> firsts{{{each.gate}, {each.up}, {shared.gate}, {shared.up}}};
  const auto described = linear_.describe(model.input(layer_, of.input), firsts);
  step.forms = described.forms;
  const std::span<const cuda::Matmul> products(described.products);
  const auto down_of = [&](const Linear* down, int input) {
    const CudaMatmul item{down};
    return linear_.describe(model.input(layer_, input), {&item, 1});
  };
  step.expert = part_of(e.width, products, down_of(each.down, of.gated_input));
  if (last == nullptr) return program_.experts(step);
  step.shared = part_of(last->from.width, products.subspan(2), down_of(shared.down, last->input));
  return program_.experts(step);
}

bool OneLaunch::add(const step::Logits& s) {
  const CudaMatmul head{&operands_.model().head, operands_.row(s.to), s.to.stride, false};
  return multiply(operands_.model().input(-1, 0), operands_.source(s.from, s.norm, -1, 0),
                  {&head, 1});
}

}  // namespace walsh
