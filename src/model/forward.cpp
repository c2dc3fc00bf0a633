#include "model/forward.h"

#include <algorithm>

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

bool is_gated(const ModelConfig& config) {
  return std::any_of(config.layers.begin(), config.layers.end(), [](const LayerDesc& layer) {
    return layer.attention.gated || layer.delta_net.present();
  });
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
  const bool has_shared = shared.gate >= 0;
  if (has_shared) {
    matmuls.push_back({shared.gate, Rows::gate});
    matmuls.push_back({shared.up, Rows::up});
  }
  if (e.shared_gate >= 0) matmuls.push_back({e.shared_gate, Rows::share});
  ops.push_back(multiply(layer, desc.matrix(e.router).input, Rows::stream, std::move(matmuls)));
  ops.push_back(of_layer(Kind::route, layer));
  ops.push_back(of_layer(Kind::experts, layer));
  if (has_shared) {
    ops.push_back(
        multiply(layer, desc.matrix(shared.down).input, Rows::gate, {{shared.down, Rows::branch}}));
  }
  ops.push_back(of_layer(Kind::add_experts, layer));
  ops.push_back(of_layer(Kind::add_branch, layer));
}

// The latents of queries, if they have one, and of keys and values, then the heads.
void add_latent_products(const LayerDesc& desc, int layer, std::vector<ForwardOp>& ops) {
  const AttentionDesc& a = desc.attention;
  const LatentDesc& l = a.latent;
  const bool of_latent = l.query_rank > 0;
  const ForwardOp::Matmul query = {a.q, Rows::query};
  const ForwardOp::Matmul first =
      of_latent ? ForwardOp::Matmul{l.query_down, Rows::query_latent} : query;
  ops.push_back(multiply(layer, desc.matrix(l.down).input, Rows::stream,
                         {first, {l.down, Rows::latent}, {l.shared_key, Rows::shared_key}}));
  if (of_latent)
    ops.push_back(multiply(layer, desc.matrix(a.q).input, Rows::query_latent, {query}));
  ops.push_back(multiply(layer, desc.matrix(a.k).input, Rows::latent,
                         {{a.k, Rows::key}, {a.v, Rows::value}}));
}

void add_attention(const LayerDesc& desc, int layer, std::vector<ForwardOp>& ops) {
  const AttentionDesc& a = desc.attention;
  if (a.latent.present()) {
    add_latent_products(desc, layer, ops);
  } else {
    ops.push_back(multiply(layer, desc.matrix(a.q).input, Rows::stream,
                           {{a.q, Rows::query}, {a.k, Rows::key}, {a.v, Rows::value}}));
  }
  ops.push_back(of_layer(Kind::place_heads, layer));
  ops.push_back(of_layer(Kind::attend, layer));
  if (a.gated) ops.push_back(of_layer(Kind::gate_mixed, layer));
  add_exit(desc, layer, a.o, Rows::mixed, true, ops);
}

void add_delta_net(const LayerDesc& desc, int layer, std::vector<ForwardOp>& ops) {
  const DeltaNetDesc& d = desc.delta_net;
  ops.push_back(multiply(layer, desc.matrix(d.qkv).input, Rows::stream,
                         {{d.qkv, Rows::channels},
                          {d.z, Rows::mixer_gate},
                          {d.b, Rows::strength},
                          {d.a, Rows::decay}}));
  ops.push_back(of_layer(Kind::convolve, layer));
  ops.push_back(of_layer(Kind::delta_rule, layer));
  ops.push_back(of_layer(Kind::gate_mixed, layer));
  add_exit(desc, layer, d.o, Rows::mixed, true, ops);
}

}  // namespace

bool experts_elsewhere(const LayerDesc& layer) {
  return !layer.experts.present() && layer.experts.chosen > 0;
}

std::array<int64_t, kRowKinds> row_widths(const ModelConfig& config) {
  const LayerWidths w = widest(config);
  std::array<int64_t, kRowKinds> widths = {};
  const auto set = [&](Rows rows, int64_t width) { widths[static_cast<size_t>(rows)] = width; };
  set(Rows::stream, config.hidden);
  set(Rows::branch, config.hidden);
  set(Rows::query, w.query_rows);
  set(Rows::key, w.kv);
  set(Rows::value, w.kv);
  set(Rows::latent, w.latent);
  set(Rows::query_latent, w.query_latent);
  set(Rows::shared_key, w.shared_key);
  set(Rows::channels, w.channels);
  set(Rows::decay, w.value_heads);
  set(Rows::strength, w.value_heads);
  set(Rows::mixed, w.mixed);
  set(Rows::mixer_gate, is_gated(config) ? w.mixed : 0);
  set(Rows::gate, w.mlp);
  set(Rows::up, w.mlp);
  set(Rows::router, w.experts);
  set(Rows::share, w.experts > 0 ? 1 : 0);
  set(Rows::logits, config.vocab);
  return widths;
}

std::vector<ForwardOp> layer_operations(const ModelConfig& config, int layer) {
  const LayerDesc& desc = config.layers[static_cast<size_t>(layer)];
  const MlpDesc& mlp = desc.mlp;
  std::vector<ForwardOp> ops;
  if (desc.delta_net.present()) {
    add_delta_net(desc, layer, ops);
  } else if (desc.attention.present()) {
    add_attention(desc, layer, ops);
  }
  if (desc.experts.present()) {
    add_experts(desc, layer, ops);
    return ops;
  }
  if (mlp.width == 0) return ops;
  ops.push_back(multiply(layer, desc.matrix(mlp.up).input, Rows::stream,
                         {{mlp.gate, Rows::gate}, {mlp.up, Rows::up}}));
  if (experts_elsewhere(desc)) {
    ops.push_back(
        multiply(layer, desc.matrix(mlp.down).input, Rows::gate, {{mlp.down, Rows::branch}}));
    return ops;
  }
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
  // What place_heads or convolve reads.
  const auto is_read = [](const ForwardOp::Matmul& product) {
    switch (product.to) {
      case Rows::query:
      case Rows::query_latent:
      case Rows::key:
      case Rows::channels:
        return true;
      default:
        return false;
    }
  };
  const bool in_front = op.kind == Kind::multiply && !op.matmuls.empty() && is_read(op.matmuls[0]);
  return op.kind != Kind::place_heads && op.kind != Kind::convolve && !in_front;
}

}  // namespace walsh
