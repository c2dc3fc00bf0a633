// What the GPU's executor does in layers with experts and in recurrent ones, and with gates.
#include "model/cuda/executor.h"
#include "model/cuda/expert_step.h"

namespace walsh {

void CudaExecutor::copy_state(int32_t from, int32_t to) {
  cuda::select_device(model_.device.index);
  memory_->delta_net.copy(from, to, stream_.get());
}

void CudaExecutor::route(const ForwardOp& op, int64_t skip) {
  const cuda::Buffer& bias = gains_of(op).choice_bias;
  memory_->experts.route(layer_of(op), model_.layers[static_cast<size_t>(op.layer)],
                         row(Rows::router, 0, 0), bias.empty() ? nullptr : bias.as<float>(),
                         m_ - skip, stream_.get());
}

// The rows of the stream, which the router reads as well.
cuda::InputSource CudaExecutor::expert_source(const ForwardOp& op, int64_t skip) const {
  const LayerDesc& desc = layer_of(op);
  const int input = desc.matrix(desc.experts.router).input;
  const ActivationDesc& activation = desc.activations[static_cast<size_t>(input)];
  cuda::InputSource source;
  source.width = source.ldx = activation.width;
  source.x = row(Rows::stream, skip, source.ldx);
  source.gain = floats(gains_of(op).inputs[static_cast<size_t>(input)]);
  source.eps = activation.norm.eps;
  return source;
}

// `multiply` made only the forms that the router and a shared expert read.
void CudaExecutor::run_experts(const ForwardOp& op, int64_t skip) {
  const auto layer = static_cast<size_t>(op.layer);
  memory_->experts.run(layer_of(op), model_.layers[layer], expert_strides_[layer],
                       expert_source(op, skip), m_ - skip, stream_.get());
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
  memory_->experts.sum(desc, call, stream_.get());
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

// What a mixer gives keeps its place in the batch, and so do gates.
void CudaExecutor::gate_mixed(const ForwardOp& op, int64_t skip) {
  const LayerDesc& desc = layer_of(op);
  const DeltaNetDesc& d = desc.delta_net;
  cuda::GateMixedCall call;
  call.heads = static_cast<int>(d.present() ? d.value_heads : desc.attention.heads);
  call.dim = static_cast<int>(d.present() ? d.value_dim : desc.attention.head_dim);
  const int64_t width = int64_t{call.heads} * call.dim;
  call.x = row(Rows::mixed, skip, width);
  call.gate = row(Rows::mixer_gate, skip, width);
  if (d.present()) {
    call.gain = memory_->delta_net.norm(op.layer);
    call.eps = d.norm.eps;
  }
  call.m = m_ - skip;
  cuda::gate_mixed(call, stream_.get());
}

}  // namespace walsh
