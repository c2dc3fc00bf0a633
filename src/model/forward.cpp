#include "model/forward.h"

namespace walsh {
namespace {

using Kind = ForwardOp::Kind;

ForwardOp multiply(int layer, int input, Rows from, std::vector<ForwardOp::Matmul> matmuls) {
  ForwardOp op;
  op.kind = Kind::multiply;
  op.layer = layer;
  op.input = input;
  op.from = from;
  op.matmuls = std::move(matmuls);
  return op;
}

ForwardOp of_layer(Kind kind, int layer) {
  ForwardOp op;
  op.kind = kind;
  op.layer = layer;
  return op;
}

// stream += scale * norm(matrix(from)).
void add_exit(const LayerDesc& desc, int layer, int matrix, Rows from, bool after_attention,
              std::vector<ForwardOp>& ops) {
  const NormDesc& norm = after_attention ? desc.after_attention : desc.after_mlp;
  const bool plain = !norm.present() && desc.branch_scale == 1;
  const int input = desc.matrix(matrix).input;
  ops.push_back(multiply(layer, input, from, {{matrix, plain ? Rows::stream : Rows::branch}}));
  ops.back().add = plain;
  if (plain) return;
  ops.push_back(of_layer(Kind::add_branch, layer));
  ops.back().after_attention = after_attention;
}

// The router and the shared expert read the input of the experts, so it is made once. Their results
// meet in `branch`.
void add_experts(const LayerDesc& desc, int layer, std::vector<ForwardOp>& ops) {
  const ExpertsDesc& e = desc.experts;
  const MlpDesc& shared = desc.mlp;
  std::vector<ForwardOp::Matmul> matmuls = {{e.router, Rows::router}};
  if (shared.width > 0) {
    matmuls.push_back({shared.gate, Rows::gate});
    matmuls.push_back({shared.up, Rows::up});
    if (e.shared_gate >= 0) matmuls.push_back({e.shared_gate, Rows::share});
  }
  ops.push_back(multiply(layer, desc.matrix(e.router).input, Rows::stream, std::move(matmuls)));
  ops.push_back(of_layer(Kind::route, layer));
  ops.push_back(of_layer(Kind::experts, layer));
  if (shared.width > 0) {
    ops.push_back(
        multiply(layer, desc.matrix(shared.down).input, Rows::gate, {{shared.down, Rows::branch}}));
  }
  ops.push_back(of_layer(Kind::add_experts, layer));
  ops.push_back(of_layer(Kind::add_branch, layer));
}

}  // namespace

std::vector<ForwardOp> layer_operations(const ModelConfig& config, int layer) {
  const LayerDesc& desc = config.layers[static_cast<size_t>(layer)];
  const AttentionDesc& a = desc.attention;
  const MlpDesc& mlp = desc.mlp;
  std::vector<ForwardOp> ops;
  ops.push_back(multiply(layer, desc.matrix(a.q).input, Rows::stream,
                         {{a.q, Rows::query}, {a.k, Rows::key}, {a.v, Rows::value}}));
  ops.push_back(of_layer(Kind::place_heads, layer));
  ops.push_back(of_layer(Kind::attend, layer));
  add_exit(desc, layer, a.o, Rows::attended, true, ops);
  if (desc.experts.present()) {
    add_experts(desc, layer, ops);
    return ops;
  }
  ops.push_back(multiply(layer, desc.matrix(mlp.up).input, Rows::stream,
                         {{mlp.gate, Rows::gate}, {mlp.up, Rows::up}}));
  add_exit(desc, layer, mlp.down, Rows::gate, false, ops);
  return ops;
}

ForwardOp embed_operation() {
  return {};
}

ForwardOp head_operation() {
  return multiply(-1, 0, Rows::stream, {{0, Rows::logits}});
}

ForwardPass::ForwardPass(const ModelConfig& config)
    : embed_(embed_operation()), head_(head_operation()) {
  for (size_t i = 0; i < config.layers.size(); ++i) {
    first_.push_back(operations_.size());
    for (ForwardOp& op : layer_operations(config, static_cast<int>(i)))
      operations_.push_back(std::move(op));
  }
  first_.push_back(operations_.size());
}

std::span<const ForwardOp> ForwardPass::layer(int64_t index) const {
  const size_t begin = first_[static_cast<size_t>(index)];
  return std::span(operations_).subspan(begin, first_[static_cast<size_t>(index) + 1] - begin);
}

bool ForwardPass::only_wanted_rows(const ForwardOp& op) const {
  if (op.layer < 0 || static_cast<size_t>(op.layer) + 2 < first_.size()) return false;
  const bool to_cache =
      op.kind == Kind::multiply && !op.matmuls.empty() && op.matmuls[0].to == Rows::query;
  return op.kind != Kind::place_heads && !to_cache;
}

}  // namespace walsh
