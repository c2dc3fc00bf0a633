// What the CPU's executor does between the matrices of attention and of delta nets.
#include <algorithm>
#include <cmath>

#include "model/cpu/executor.h"

namespace walsh {

const AttentionDesc& CpuExecutor::attention_of(int64_t layer) const {
  return model_.config.layers[static_cast<size_t>(layer)].attention;
}

void CpuExecutor::attend(int64_t layer, int64_t skip) {
  int64_t first = 0;
  for (size_t run = 0; run < runs_.size(); ++run) {
    if (first + runs_[run].rows > skip) attend_run(layer, run, first, skip);
    first += runs_[run].rows;
  }
}

// From the rows of `mixed`, the first of which is row `skip` of the batch.
void CpuExecutor::gate_mixed(const ForwardOp& op, int64_t skip) {
  const LayerDesc& desc = model_.config.layers[static_cast<size_t>(op.layer)];
  const DeltaNetDesc& d = desc.delta_net;
  const std::vector<float>& gain = model_.layers[static_cast<size_t>(op.layer)].delta_net.norm;
  for_rows(m_ - skip, [&](int64_t row, float*) {
    float* x = rows(Rows::mixed).row(row);
    const float* gate = rows(Rows::mixer_gate).row(skip + row);
    if (!d.present()) return ops_.sigmoid_mul(gate, x, desc.attention.query_width(), x);
    for (int64_t h = 0; h < d.value_heads; ++h) {
      float* head = x + h * d.value_dim;
      ops_.rms_norm(head, gain.data(), d.value_dim, d.norm.eps, head);
    }
    ops_.silu_mul(gate, x, d.value_width(), x);
  });
}

// Queries with gates become queries and gates.
void CpuExecutor::take_gates(const AttentionDesc& a, int64_t row) {
  float *q = rows(Rows::query).row(row), *gate = rows(Rows::mixer_gate).row(row);
  for (int64_t h = 0; h < a.heads; ++h) {
    const float* from = q + 2 * h * a.head_dim;
    std::copy_n(from + a.head_dim, a.head_dim, gate + h * a.head_dim);
    if (h > 0) std::copy_n(from, a.head_dim, q + h * a.head_dim);
  }
}

void CpuExecutor::raise_query(const Rope& rope, int64_t width, int64_t row) {
  if (rope.query.empty()) return;
  float* x = rows(Rows::query).row(row);
  for (int64_t i = 0; i < width; ++i)
    x[i] *= rope.query[static_cast<size_t>(row)];
}

// Norms and rotates queries and keys; keys and values go to the cache.
void CpuExecutor::place_heads(int64_t index) {
  const Layer& layer = model_.layers[static_cast<size_t>(index)];
  const AttentionDesc& a = attention_of(index);
  const int head_dim = static_cast<int>(a.head_dim);
  const auto place = [&](float* x, int64_t heads, const NormDesc& norm,
                         const std::vector<float>& gain, int64_t row) {
    for (int64_t i = 0; i < heads * head_dim && norm.present(); i += norm.width)
      ops_.rms_norm(x + i, gain.data(), norm.width, norm.eps, x + i);
    if (a.rope < 0) return;
    const Rope& rope = ropes_[static_cast<size_t>(a.rope)];
    const int64_t at = row * rope.pairs();
    ops_.rope(x, static_cast<int>(heads), head_dim, static_cast<int>(2 * rope.pairs()),
              rope.cos.data() + at, rope.sin.data() + at);
  };
  RowBuffer &q = rows(Rows::query), &k = rows(Rows::key);
  for_rows(m_, [&](int64_t row, float*) {
    if (a.gated) take_gates(a, row);
    place(q.row(row), a.heads, a.q_norm, layer.q_norm, row);
    if (a.rope >= 0) raise_query(ropes_[static_cast<size_t>(a.rope)], a.query_width(), row);
    place(k.row(row), a.kv_heads, a.k_norm, layer.k_norm, row);
  });
  cache_->store(index, k.row(0), rows(Rows::value).row(0), k.stride);
}

// Queries of run `index`, which begins at row `first` of the batch, to the rows of `mixed`, of
// which the first is row `skip` of the batch.
void CpuExecutor::attend_run(int64_t layer, size_t index, int64_t first, int64_t skip) {
  const AttentionDesc& a = attention_of(layer);
  const int64_t group = a.heads / a.kv_heads;
  const int64_t queries = std::max<int64_t>(1, kAttentionRows / group);
  const int64_t begin = std::max(first, skip), end = first + runs_[index].rows;
  const int64_t blocks = (end - begin + queries - 1) / queries;
  RowBuffer &q = rows(Rows::query), &out = rows(Rows::mixed);
  model_.pool().for_each(blocks * a.kv_heads, [&](int64_t i, int thread) {
    const int64_t head = i % a.kv_heads;
    const int64_t row = begin + i / a.kv_heads * queries;
    const int64_t column = head * group * a.head_dim;
    QueryRows block = {index,
                       row - first,
                       std::min(queries, end - row),
                       head,
                       q.row(row) + column,
                       q.stride,
                       out.row(row - skip) + column,
                       out.stride};
    const auto at = static_cast<size_t>(thread);
    if (!a.sinks.empty()) block.log_sums = log_sums_[at].data();
    cache_->attend(layer, block, thread, scratch_[at].data());
    if (!a.sinks.empty()) add_sinks(layer, block);
  });
}

// A sink is one more position of its head, whose value is zero.
void CpuExecutor::add_sinks(int64_t layer, const QueryRows& queries) {
  const AttentionDesc& a = attention_of(layer);
  const int64_t group = a.heads / a.kv_heads;
  const float* sinks =
      model_.layers[static_cast<size_t>(layer)].sinks.data() + queries.head * group;
  for (int64_t i = 0; i < queries.m * group; ++i) {
    const float share = 1 / (1 + std::exp(sinks[i % group] - queries.log_sums[i]));
    float* out = queries.out + i / group * queries.ldo + i % group * a.head_dim;
    for (int64_t d = 0; d < a.head_dim; ++d)
      out[d] *= share;
  }
}

}  // namespace walsh
