// What the CPU's executor does between the matrices of attention and of delta nets.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/cpu/executor.h"

namespace walsh {

void CpuExecutor::perform(const step::Attend& s, int layer, int64_t skip) {
  int64_t first = 0;
  for (size_t run = 0; run < runs_.size(); ++run) {
    if (first + runs_[run].rows > skip) attend_run(s, layer, run, first, skip);
    first += runs_[run].rows;
  }
  if (s.value_dim < s.shape.dim) close_values(s, m_ - skip);
}

// Keeps, of each head in the rows of `mixed`, the first value_dim values.
void CpuExecutor::close_values(const step::Attend& s, int64_t count) {
  for_rows(count, [&](int64_t row, float*) {
    float* x = rows(s.to.rows).row(row);
    for (int64_t h = 1; h < s.shape.heads; ++h)
      std::copy_n(x + h * s.shape.dim, s.value_dim, x + h * s.value_dim);
  });
}

void CpuExecutor::perform(const step::Convolve& s, int layer, int64_t) {
  delta_net_.convolve(s, layer, view(s.channels.rows), view(s.decay.rows), view(s.strength.rows));
}

void CpuExecutor::perform(const step::DeltaRule& s, int layer, int64_t skip) {
  delta_net_.apply_rule(layer, view(s.channels.rows), view(s.decay.rows), view(s.strength.rows),
                        view(s.to.rows), skip);
}

// From the rows of `mixed`, the first of which is row `skip` of the batch.
void CpuExecutor::perform(const step::GateHeads& s, int layer, int64_t skip) {
  for_rows(m_ - skip, [&](int64_t row, float*) {
    float* x = rows(s.x.rows).row(row);
    const float* gate = rows(s.gate.rows).row(skip + row);
    if (!s.norm.present()) return ops_.sigmoid_mul(gate, x, s.x.width, x);
    normalize(s.norm, layer, x, s.x.width);
    ops_.silu_mul(gate, x, s.x.width, x);
  });
}

// Every norm.width of the values.
void CpuExecutor::normalize(const Norm& norm, int layer, float* x, int64_t width) const {
  const float* gain = vector(layer, norm.gain);
  for (int64_t i = 0; i < width && norm.present(); i += norm.width)
    ops_.rms_norm(x + i, gain, norm.width, norm.eps, x + i);
}

// Queries with gates become queries and gates.
void CpuExecutor::take_gates(const step::PrepareHeads& s, int64_t row) {
  const int64_t dim = s.shape.dim;
  const float* from = rows(s.query.rows).row(row);
  float *q = rows(s.to.rows).row(row), *gate = rows(s.gates.rows).row(row);
  for (int64_t h = 0; h < s.shape.heads; ++h) {
    std::copy_n(from + 2 * h * dim, dim, q + h * dim);
    std::copy_n(from + (2 * h + 1) * dim, dim, gate + h * dim);
  }
}

// The first values of every head, `dim` values apart, turn by the angles of the row's position.
void CpuExecutor::turn_heads(int index, float* x, int64_t heads, int64_t dim, int64_t row) {
  if (index < 0) return;
  const Rope& rope = ropes_[static_cast<size_t>(index)];
  const int64_t at = row * rope.pairs();
  ops_.rope(x, static_cast<int>(heads), static_cast<int>(dim), static_cast<int>(2 * rope.pairs()),
            rope.cos.data() + at, rope.sin.data() + at);
}

// Keys and values get all values of each head: keys the rotated values that all heads share, then
// their own, values zeros at their end. Heads move to higher places, so the last goes first.
void CpuExecutor::spread_latent(const step::PrepareHeads& s, int64_t row) {
  const int64_t dim = s.shape.dim, turned = s.shared_key.width, own = dim - turned;
  float *shared = rows(s.shared_key.rows).row(row), *key = rows(s.key.rows).row(row),
        *value = rows(s.value.rows).row(row);
  turn_heads(s.rope, shared, 1, turned, row);
  for (int64_t h = s.shape.heads - 1; h >= 0; --h) {
    float *to_key = key + h * dim, *to_value = value + h * dim;
    std::memmove(to_key + turned, key + h * own, static_cast<size_t>(own) * sizeof(float));
    std::copy_n(shared, turned, to_key);
    std::memmove(to_value, value + h * s.value_dim,
                 static_cast<size_t>(s.value_dim) * sizeof(float));
    std::fill(to_value + s.value_dim, to_value + dim, 0.0f);
  }
}

// Norm, rope and unit length of heads of queries or keys, which have this norm.
void CpuExecutor::prepare_heads(const step::PrepareHeads& s, const Norm& norm, int64_t heads,
                                float* x, int layer, int64_t row) {
  normalize(norm, layer, x, heads * s.shape.dim);
  turn_heads(s.rope, x, heads, s.shape.dim, row);
  normalize(s.unit, layer, x, heads * s.shape.dim);
}

void CpuExecutor::prepare_row(const step::PrepareHeads& s, int layer, int64_t row) {
  const HeadShape& shape = s.shape;
  float* q = rows(s.to.rows).row(row);
  if (s.gates.present()) take_gates(s, row);
  prepare_heads(s, s.query_norm, shape.heads, q, layer, row);
  if (s.factors >= 0) {
    const float factor = query_factors_[static_cast<size_t>(s.factors)][static_cast<size_t>(row)];
    for (int64_t i = 0; i < shape.query_width() && factor != 1; ++i)
      q[i] *= factor;
  }
  if (s.shared_key.present()) return spread_latent(s, row);
  if (!s.key.present()) return;
  float *key = rows(s.key.rows).row(row), *value = rows(s.value.rows).row(row);
  if (s.values_are_keys) std::copy_n(key, s.key.width, value);
  normalize(s.value_norm, layer, value, s.value.width);
  prepare_heads(s, s.key_norm, shape.kv_heads, key, layer, row);
}

void CpuExecutor::perform(const step::PrepareHeads& s, int layer, int64_t) {
  for_rows(m_, [&](int64_t row, float*) { prepare_row(s, layer, row); });
  if (!s.key.present()) return;
  RowBuffer& k = rows(s.key.rows);
  cache_->store(layer, k.row(0), rows(s.value.rows).row(0), k.stride);
}

// Queries of run `index`, which begins at row `first` of the batch, to the rows of `mixed`, of
// which the first is row `skip` of the batch.
void CpuExecutor::attend_run(const step::Attend& s, int layer, size_t index, int64_t first,
                             int64_t skip) {
  const int64_t group = s.shape.heads / s.shape.kv_heads;
  const int64_t queries = std::max<int64_t>(1, kAttentionRows / group);
  const int64_t begin = std::max(first, skip), end = first + runs_[index].rows;
  const int64_t blocks = (end - begin + queries - 1) / queries;
  RowBuffer &q = rows(s.query.rows), &out = rows(s.to.rows);
  model_.pool().for_each(blocks * s.shape.kv_heads, [&](int64_t i, int thread) {
    const int64_t head = i % s.shape.kv_heads;
    const int64_t row = begin + i / s.shape.kv_heads * queries;
    const int64_t column = head * group * s.shape.dim;
    QueryRows block = {index,
                       row - first,
                       std::min(queries, end - row),
                       head,
                       q.row(row) + column,
                       q.stride,
                       out.row(row - skip) + column,
                       out.stride,
                       s.options};
    const auto at = static_cast<size_t>(thread);
    if (s.sinks >= 0) block.log_sums = log_sums_[at].data();
    cache_->attend(s.cache, block, thread, scratch_[at].data());
    if (s.sinks >= 0) add_sinks(s, layer, block);
  });
}

// A sink is one more position of its head, whose value is zero.
void CpuExecutor::add_sinks(const step::Attend& s, int layer, const QueryRows& queries) {
  const int64_t group = s.shape.heads / s.shape.kv_heads;
  const float* sinks = vector(layer, s.sinks) + queries.head * group;
  for (int64_t i = 0; i < queries.m * group; ++i) {
    const float share = 1 / (1 + std::exp(sinks[i % group] - queries.log_sums[i]));
    float* out = queries.out + i / group * queries.ldo + i % group * s.shape.dim;
    for (int64_t d = 0; d < s.shape.dim; ++d)
      out[d] *= share;
  }
}

}  // namespace walsh
