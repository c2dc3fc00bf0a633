#include "model/cuda/expert_step.h"

#include <array>

namespace walsh {
namespace {

// The matrices of one expert, or of the shared one.
struct Matrices {
  const Linear *gate, *up, *down;
};

bool are_coded(const Matrices& m) {
  return !m.gate->is_dense() && !m.up->is_dense() && !m.down->is_dense();
}

// What the layer's description asks for beside what programs of steps know.
bool is_step(const LayerDesc& desc) {
  const bool shared_elsewhere = desc.mlp.width > 0 && desc.mlp.gate < 0;
  return !desc.experts.routing.of_input && !desc.after_mlp.present() && desc.branch_scale == 1 &&
         !shared_elsewhere;
}

cuda::ExpertStep::Part part_of(int64_t width, const CudaLinear::Coded& first,
                               const CudaLinear::Coded& last) {
  cuda::ExpertStep::Part part;
  part.width = width;
  part.gate = first.products[0];
  part.up = first.products[1];
  part.down = last.products[0];
  part.gated = last.forms[0];
  return part;
}

}  // namespace

bool add_expert_step(const LayerDesc& desc, const Layer& layer, const ExpertStepRows& rows,
                     CudaLinear& linear, cuda::PersistentProgram& program) {
  const ExpertsDesc& e = desc.experts;
  const MlpDesc& mlp = desc.mlp;
  const Matrices each{&layer.matrix(e.gate(0)), &layer.matrix(e.up(0)), &layer.matrix(e.down(0))};
  const bool has_shared = mlp.gate >= 0;
  const Matrices shared =
      has_shared ? Matrices{&layer.matrix(mlp.gate), &layer.matrix(mlp.up), &layer.matrix(mlp.down)}
                 : each;
  const Linear& router = layer.matrix(e.router);
  if (!linear.has_steps() || !is_step(desc) || !are_coded(each) || !are_coded(shared) ||
      !is_dense_without_bias(router) ||
      (e.shared_gate >= 0 && !is_dense_without_bias(layer.matrix(e.shared_gate))))
    return false;
  cuda::ExpertStep step;
  step.source = rows.source;
  step.router = &cuda_weights(router).dense;
  if (e.shared_gate >= 0) step.share = &cuda_weights(layer.matrix(e.shared_gate)).dense;
  step.rule = cuda::route_rule(e);
  step.bias = rows.choice_bias;
  step.function = mlp.function;
  step.stride = rows.stride;
  step.stream = rows.stream;
  // Gates and ups of both kinds read forms of one activation.
  const Input& input = layer.input(desc.matrix(e.gate(0)).input);
  const std::array<CudaMatmul, 4> firsts{{{each.gate}, {each.up}, {shared.gate}, {shared.up}}};
  const auto described = linear.describe(input, firsts);
  step.forms = described.forms;
  const auto down_of = [&](int matrix) {
    const CudaMatmul down{&layer.matrix(matrix)};
    return linear.describe(layer.input(desc.matrix(matrix).input), {&down, 1});
  };
  const auto gated = down_of(e.down(0));
  step.expert = part_of(e.width, described, gated);
  if (!has_shared) return program.experts(step);
  auto of_shared = described;
  of_shared.products.erase(of_shared.products.begin(), of_shared.products.begin() + 2);
  step.shared = part_of(mlp.width, of_shared, down_of(mlp.down));
  return program.experts(step);
}

}  // namespace walsh
