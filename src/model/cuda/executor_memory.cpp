#include "model/cuda/executor_memory.h"

#include <algorithm>

#include "base/checked.h"
#include "base/cuda/counted_memory.h"

namespace walsh {
namespace {

constexpr int64_t kFloat = sizeof(float), kId = sizeof(int32_t);
// Logits computed together: 64 MiB, and at least a row for each vector of a decode step and for
// each sequence, whose tokens are chosen together.
constexpr int64_t kLogitFloats = int64_t{1} << 24;

cuda::Buffer array(std::initializer_list<int64_t> factors, bool zeroed = false) {
  uint64_t bytes = 1;
  for (const int64_t factor : factors)
    bytes = checked_mul(bytes, static_cast<uint64_t>(factor), "GPU workspaces");
  return cuda::Buffer(bytes, zeroed);
}

// Whether what a block computes is not added to the residual stream at once.
bool needs_branch(const ModelConfig& config) {
  const ForwardPass pass(config);
  return std::any_of(pass.layers().begin(), pass.layers().end(), [](const ForwardOp& op) {
    const auto is_branch = [](const ForwardOp::Matmul& m) { return m.to == Rows::branch; };
    return op.kind == ForwardOp::Kind::add_branch ||
           std::any_of(op.matmuls.begin(), op.matmuls.end(), is_branch);
  });
}

cuda::Buffer gain_of(const NormDesc& norm, int64_t width) {
  return array({norm.present() ? width : 0, kFloat});
}

CudaMemory::Gains gains_of(const LayerDesc& layer, int64_t hidden) {
  CudaMemory::Gains gains;
  for (const ActivationDesc& activation : layer.activations)
    gains.inputs.push_back(gain_of(activation.norm, activation.width));
  const AttentionDesc& a = layer.attention;
  // Heads of unit length have gains of one.
  const int64_t ones = a.unit_eps != 0 ? a.head_dim : 0;
  gains.q_norm = array({std::max(ones, a.q_norm.present() ? a.q_norm.width : 0), kFloat});
  gains.k_norm = array({std::max(ones, a.k_norm.present() ? a.k_norm.width : 0), kFloat});
  gains.after_attention = gain_of(layer.after_attention, hidden);
  gains.after_mlp = gain_of(layer.after_mlp, hidden);
  if (!layer.attention.sinks.empty()) gains.sinks = array({layer.attention.heads, kFloat});
  if (!layer.experts.routing.bias.empty()) gains.choice_bias = array({layer.experts.count, kFloat});
  return gains;
}

}  // namespace

CudaKvMemory::CudaKvMemory(const ModelConfig& config, const CacheTypes& types, const KvShape& shape,
                           int64_t max_rows)
    : page_table(array({shape.sequences, shape.pages_per_sequence(), kId}, true)),
      table{page_table.as<int32_t>(), shape.pages_per_sequence()} {
  static_assert(kGpuPagePositions == cuda::kPageTokens);
  if (types.coded()) {
    coded = std::make_unique<CudaCodedCache>(config, types, table, shape, max_rows);
    return;
  }
  for (const LayerDesc& layer : config.layers) {
    const AttentionDesc& a = layer.attention;
    if (!a.present()) {
      pools.emplace_back();
      continue;
    }
    pools.emplace_back(static_cast<int>(a.kv_heads), static_cast<int>(a.head_dim), shape.pages);
  }
}

CudaMemory::CudaMemory(const ModelConfig& c, const CudaShapes& shapes, const KvShape& shape,
                       int64_t rows_of_batch)
    : max_rows(rows_of_batch),
      logit_rows(std::min(max_rows,
                          std::max({kLogitFloats / c.vocab, cuda::kMaxVectors, shape.sequences}))),
      history_stride(2 * shape.capacity),
      cache(c, shapes.cache, shape, max_rows),
      delta_net(c, shape.sequences + shapes.snapshots, max_rows),
      linear(shapes, max_rows),
      experts(shapes.experts, c.hidden, max_rows),
      final_gain(gain_of(c.head_input.norm, c.hidden)) {
  for (const LayerDesc& layer : c.layers)
    gains.push_back(gains_of(layer, c.hidden));
  const LayerWidths w = widest(c);
  for (const RopeConfig& config : c.ropes) {
    const auto pairs =
        static_cast<int64_t>(rope_table(config, w.head_dim, shape.capacity).frequencies.size());
    ropes.push_back({static_cast<int>(pairs), array({shape.capacity, pairs, kFloat}),
                     array({shape.capacity, pairs, kFloat}),
                     array({config.query_beta != 0 ? shape.capacity : 0, kFloat})});
  }
  const bool grows = std::any_of(c.layers.begin(), c.layers.end(), [](const LayerDesc& layer) {
    return layer.attention.growth != 0;
  });
  growth = array({grows ? shape.capacity : 0, kFloat});
  std::array<int64_t, kRowKinds> widths = row_widths(c);
  if (!needs_branch(c)) widths[static_cast<size_t>(Rows::branch)] = 0;
  // It also takes rows of the stream whose logits are wanted.
  int64_t& gate = widths[static_cast<size_t>(Rows::gate)];
  gate = std::max(gate, c.hidden);
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool logits = static_cast<Rows>(i) == Rows::logits;
    rows[i] = array({logits ? logit_rows : max_rows, widths[i], kFloat});
  }
  const bool gated = std::any_of(c.layers.begin(), c.layers.end(),
                                 [](const LayerDesc& layer) { return layer.attention.gated; });
  queries = array({gated ? max_rows : 0, w.query, kFloat});
  attention_scratch =
      cuda::AttentionScratch(std::min(max_rows, cuda::kMaxVectors), static_cast<int>(w.heads),
                             static_cast<int>(w.kv_heads), static_cast<int>(w.head_dim));
  staged = array({kStaged, max_rows, kId});
  sample_states = array({shape.sequences, int64_t{sizeof(cuda::SampleState)}}, true);
  history = array({shape.sequences, history_stride, kId}, true);
  next = array({shape.sequences, kId}, true);
  if (c.vocab <= cuda::kMaxSampledVocab)
    sample_scratch = cuda::SampleScratch(std::min(shape.sequences, logit_rows), c.vocab);
}

uint64_t cuda_memory_bytes(const ModelConfig& config, const CudaShapes& shapes,
                           const KvShape& shape, int64_t max_rows) {
  const cuda::CountedMemory counted;
  const CudaMemory memory(config, shapes, shape, max_rows);
  return checked_add(counted.bytes(), kCudaReserve, "GPU memory");
}

}  // namespace walsh
