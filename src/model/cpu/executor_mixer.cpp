// What the CPU's executor does between the matrices of attention and of delta nets.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/cpu/executor.h"
#include "model/positions.h"

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
  const AttentionDesc& a = attention_of(layer);
  if (a.latent.present() && a.latent.value_dim < a.head_dim) close_values(a, m_ - skip);
}

// Of the rows of `mixed` the value_dim values of every head, which are the first of head_dim.
void CpuExecutor::close_values(const AttentionDesc& a, int64_t count) {
  for_rows(count, [&](int64_t row, float*) {
    float* x = rows(Rows::mixed).row(row);
    for (int64_t h = 1; h < a.heads; ++h)
      std::copy_n(x + h * a.head_dim, a.latent.value_dim, x + h * a.latent.value_dim);
  });
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

// Multiplies the queries of a row by the factors of its position.
void CpuExecutor::raise_query(const AttentionDesc& a, int64_t row) {
  float factor = 1;
  if (a.rope >= 0) {
    const Rope& rope = ropes_[static_cast<size_t>(a.rope)];
    if (!rope.query.empty()) factor = rope.query[static_cast<size_t>(row)];
  }
  factor *= query_growth(a, positions_[static_cast<size_t>(row)]);
  if (factor == 1) return;
  float* x = rows(Rows::query).row(row);
  for (int64_t i = 0; i < a.query_width(); ++i)
    x[i] *= factor;
}

// The first values of every head, `dim` values apart, turn by the angles of the row's position.
void CpuExecutor::turn_heads(const AttentionDesc& a, float* x, int64_t heads, int64_t dim,
                             int64_t row) {
  if (a.rope < 0) return;
  const Rope& rope = ropes_[static_cast<size_t>(a.rope)];
  const int64_t at = row * rope.pairs();
  ops_.rope(x, static_cast<int>(heads), static_cast<int>(dim), static_cast<int>(2 * rope.pairs()),
            rope.cos.data() + at, rope.sin.data() + at);
}

void CpuExecutor::make_units(const AttentionDesc& a, float* x, int64_t heads) const {
  if (a.unit_eps == 0) return;
  for (int64_t h = 0; h < heads; ++h) {
    float* head = x + h * a.head_dim;
    ops_.rms_norm(head, ones_.data(), a.head_dim, a.unit_eps, head);
  }
}

// Keys and values get head_dim values for each head: keys the rotated values that all heads share,
// then their own, values zeros at their end. Heads move to higher places, so the last goes first.
void CpuExecutor::spread_latent(const AttentionDesc& a, int64_t row) {
  const int64_t turned = a.latent.rope_dim, own = a.head_dim - turned, dim = a.latent.value_dim;
  float *shared = rows(Rows::shared_key).row(row), *key = rows(Rows::key).row(row),
        *value = rows(Rows::value).row(row);
  turn_heads(a, shared, 1, turned, row);
  for (int64_t h = a.heads - 1; h >= 0; --h) {
    float *to_key = key + h * a.head_dim, *to_value = value + h * a.head_dim;
    std::memmove(to_key + turned, key + h * own, static_cast<size_t>(own) * sizeof(float));
    std::copy_n(shared, turned, to_key);
    std::memmove(to_value, value + h * dim, static_cast<size_t>(dim) * sizeof(float));
    std::fill(to_value + dim, to_value + a.head_dim, 0.0f);
  }
}

void CpuExecutor::place_row(const Layer& layer, const AttentionDesc& a, int64_t row) {
  const auto normalize = [&](float* x, int64_t width, const NormDesc& norm,
                             const std::vector<float>& gain) {
    for (int64_t i = 0; i < width && norm.present(); i += norm.width)
      ops_.rms_norm(x + i, gain.data(), norm.width, norm.eps, x + i);
  };
  float *q = rows(Rows::query).row(row), *k = rows(Rows::key).row(row);
  if (a.gated) take_gates(a, row);
  normalize(q, a.query_width(), a.q_norm, layer.q_norm);
  turn_heads(a, q, a.heads, a.head_dim, row);
  make_units(a, q, a.heads);
  raise_query(a, row);
  if (a.latent.present()) return spread_latent(a, row);
  normalize(k, a.kv_width(), a.k_norm, layer.k_norm);
  turn_heads(a, k, a.kv_heads, a.head_dim, row);
  make_units(a, k, a.kv_heads);
}

// Norms and rotates queries and keys; keys and values go to the cache.
void CpuExecutor::place_heads(int64_t index) {
  const Layer& layer = model_.layers[static_cast<size_t>(index)];
  const AttentionDesc& a = attention_of(index);
  for_rows(m_, [&](int64_t row, float*) { place_row(layer, a, row); });
  RowBuffer& k = rows(Rows::key);
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
