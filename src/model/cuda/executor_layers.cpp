// What the GPU's executor does in layers with experts and in recurrent ones, and with gates.
#include "model/cuda/executor.h"
#include "model/cuda/expert_step.h"

namespace walsh {

void CudaExecutor::copy_state(int32_t from, int32_t to) {
  cuda::select_device(model_.device.index);
  memory_->delta_net.copy(from, to, stream_.get());
}

// Whether the layer's experts are chosen, and their inputs made, by the launch that multiplies its
// router.
bool CudaExecutor::routes_in_front(const ForwardOp& op, int64_t skip) const {
  const ExpertsDesc& e = layer_of(op).experts;
  const Layer& layer = model_.layers[static_cast<size_t>(op.layer)];
  return CudaLinear::is_in_front(layer.matrix(e.router), m_ - skip);
}

void CudaExecutor::multiply(const ForwardOp& op, int64_t skip) {
  const Multiplication what = multiplication(op, skip);
  const LayerDesc* desc = op.layer < 0 ? nullptr : &layer_of(op);
  CudaFront front;
  const bool in_front = desc != nullptr && desc->experts.present() &&
                        op.matmuls.front().matrix == desc->experts.router &&
                        routes_in_front(op, skip);
  if (in_front) {
    front = memory_->experts.front(*desc, model_.layers[static_cast<size_t>(op.layer)],
                                   row(Rows::router, 0, 0), floats(gains_of(op).choice_bias),
                                   m_ - skip);
  }
  memory_->linear.multiply(*what.input, what.source, what.items, m_ - skip, stream_.get(),
                           in_front ? &front : nullptr);
}

void CudaExecutor::route(const ForwardOp& op, int64_t skip) {
  if (routes_in_front(op, skip)) return;
  memory_->experts.route(layer_of(op), model_.layers[static_cast<size_t>(op.layer)],
                         row(Rows::router, 0, 0), floats(gains_of(op).choice_bias), m_ - skip,
                         stream_.get());
}

// The rows of the stream as a matrix of the layer reads them.
cuda::InputSource CudaExecutor::stream_source(const ForwardOp& op, int matrix, int64_t skip) const {
  const LayerDesc& desc = layer_of(op);
  const int input = desc.matrix(matrix).input;
  const ActivationDesc& activation = desc.activations[static_cast<size_t>(input)];
  cuda::InputSource source;
  source.width = source.ldx = activation.width;
  source.x = row(Rows::stream, skip, source.ldx);
  source.gain = floats(gains_of(op).inputs[static_cast<size_t>(input)]);
  source.eps = activation.norm.eps;
  return source;
}

// The router reads the experts' input as well.
cuda::InputSource CudaExecutor::expert_source(const ForwardOp& op, int64_t skip) const {
  return stream_source(op, layer_of(op).experts.router, skip);
}

// What down makes of its input waits for sum_experts: a shared expert is multiplied before.
void CudaExecutor::run_experts(const ForwardOp& op, int64_t skip) {
  const auto layer = static_cast<size_t>(op.layer);
  memory_->experts.begin(layer_of(op), model_.layers[layer], expert_strides_[layer],
                         expert_source(op, skip), routes_in_front(op, skip), m_ - skip,
                         stream_.get());
}

bool CudaExecutor::collect_experts(const ForwardOp& op, cuda::PersistentProgram& program) const {
  const auto layer = static_cast<size_t>(op.layer);
  ExpertStepRows rows;
  rows.source = expert_source(op, 0);
  rows.stride = expert_strides_[layer];
  rows.choice_bias = floats(gains_of(op).choice_bias);
  rows.stream = row(Rows::stream, 0, rows.source.ldx);
  return add_expert_step(layer_of(op), model_.layers[layer], rows, memory_->linear, program);
}

void CudaExecutor::sum_experts(const ForwardOp& op, int64_t skip) {
  const LayerDesc& desc = layer_of(op);
  cuda::ExpertSum call;
  if (desc.experts.shared_gate >= 0) call.share = row(Rows::share, 0, 0);
  call.out = row(Rows::branch, 0, 0);
  if (!desc.after_mlp.present()) {
    call.stream = row(Rows::stream, skip, model_.config.hidden);
    call.scale = desc.branch_scale;
  }
  call.m = m_ - skip;
  const auto layer = static_cast<size_t>(op.layer);
  memory_->experts.finish(desc, model_.layers[layer], expert_strides_[layer], call, stream_.get());
}

CudaDeltaNet::Rows CudaExecutor::delta_rows() const {
  CudaDeltaNet::Rows rows;
  rows.channels = row(Rows::channels, 0, 0);
  rows.decay = row(Rows::decay, 0, 0);
  rows.strength = row(Rows::strength, 0, 0);
  rows.mixed = row(Rows::mixed, 0, 0);
  rows.places = places();
  rows.m = m_;
  return rows;
}

void CudaExecutor::convolve(const ForwardOp& op) {
  memory_->delta_net.convolve(op.layer, delta_rows(), batch_.runs, batch_.marks, stream_.get());
}

// Of all rows, whose results from `skip` on are wanted: the state goes on in any case.
void CudaExecutor::apply_rule(const ForwardOp& op, int64_t skip) {
  memory_->delta_net.apply_rule(op.layer, delta_rows(), batch_.runs, groups_, batch_.marks, skip,
                                stream_.get());
}

// What lies between the products of a delta net, of one row.
bool CudaExecutor::collect_delta(const ForwardOp& op, cuda::PersistentProgram& program) const {
  const LayerDesc& desc = layer_of(op);
  const DeltaNetDesc& d = desc.delta_net;
  const Layer& layer = model_.layers[static_cast<size_t>(op.layer)];
  const Linear &decay = layer.matrix(d.a), &strength = layer.matrix(d.b);
  if (!is_dense_without_bias(decay) || !is_dense_without_bias(strength)) return false;
  cuda::DeltaStep step;
  step.net = memory_->delta_net.step_call(op.layer, delta_rows());
  step.source = stream_source(op, d.a, 0);
  step.decay = &cuda_weights(decay).dense;
  step.strength = &cuda_weights(strength).dense;
  step.gates = head_gates(desc, op.layer, 0);
  step.mixed = row(Rows::mixed, 0, 0);
  return program.step_delta(step);
}

// Of the rows from `skip` on: what a mixer gives keeps its place in the batch, and so do gates.
// Those of attention stand where its queries do, behind the queries of their head.
cuda::HeadGates CudaExecutor::head_gates(const LayerDesc& desc, int64_t layer, int64_t skip) const {
  const DeltaNetDesc& d = desc.delta_net;
  const AttentionDesc& a = desc.attention;
  cuda::HeadGates gates;
  if (d.present()) {
    gates.dim = static_cast<int>(d.value_dim);
    gates.ld = d.value_heads * d.value_dim;
    gates.head_ld = d.value_dim;
    gates.gate = row(Rows::mixer_gate, skip, gates.ld);
    gates.gain = memory_->delta_net.norm(layer);
    gates.eps = d.norm.eps;
  } else if (a.gated) {
    gates.dim = static_cast<int>(a.head_dim);
    gates.ld = a.query_rows();
    gates.head_ld = 2 * a.head_dim;
    gates.gate = row(Rows::query, skip, gates.ld) + a.head_dim;
  }
  return gates;
}

// Where the product behind it reads what the mixer gives with its gates, nothing is left to do.
void CudaExecutor::gate_mixed(const ForwardOp& op, int64_t skip) {
  const LayerDesc& desc = layer_of(op);
  const DeltaNetDesc& d = desc.delta_net;
  const cuda::HeadGates gates = head_gates(desc, op.layer, skip);
  if (cuda::can_prepare(gates)) return;
  const int64_t heads = d.present() ? d.value_heads : desc.attention.heads;
  cuda::gate_heads(row(Rows::mixed, skip, heads * gates.dim), gates, m_ - skip,
                   static_cast<int>(heads), stream_.get());
}

}  // namespace walsh
