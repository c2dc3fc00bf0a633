// Computes on the CPU what lies between the matrices of attention and of recurrent layers.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/cpu/executor.h"

namespace walsh {
namespace {

// At least this many of the query heads that share a KV head are attended together, because each
// piece converts the same keys again.
constexpr int64_t kLeastHeads = 4;

// Adds sinks to the result: a sink acts like one more position of its head, whose value is zero.
// `sinks` has a logit for each of the queries' heads.
void add_sinks(const float* sinks, int64_t value_dim, const QueryRows& queries) {
  for (int64_t i = 0; i < queries.m * queries.heads; ++i) {
    const float share = 1 / (1 + std::exp(sinks[i % queries.heads] - queries.log_sums[i]));
    float* out = queries.out + i / queries.heads * queries.ldo + i % queries.heads * value_dim;
    for (int64_t d = 0; d < value_dim; ++d)
      out[d] *= share;
  }
}

}  // namespace

void CpuExecutor::perform(const step::Attend& s, int layer, int64_t skip) {
  int64_t first = 0;
  for (size_t run = 0; run < runs_.size(); ++run) {
    if (first + runs_[run].rows > skip) attend_run(s, layer, run, first, skip);
    first += runs_[run].rows;
  }
}

void CpuExecutor::perform(const step::Convolve& s, int layer, int64_t skip) {
  if (s.gated()) {
    return delta_net_.convolve_gated(s, layer, view(s.channels.rows), view(s.before.rows),
                                     view(s.after.rows), view(s.to.rows), skip);
  }
  delta_net_.convolve(s, layer, view(s.channels.rows), view(s.decay.rows), view(s.strength.rows));
}

void CpuExecutor::perform(const step::DeltaRule& s, int layer, int64_t skip) {
  delta_net_.apply_rule(s, layer, view(s.channels.rows), view(s.decay.rows), view(s.strength.rows),
                        view(s.to.rows), skip);
}

// Gates the rows of `mixed`, the first of which is row `skip` of the batch.
void CpuExecutor::perform(const step::GateHeads& s, int layer, int64_t skip) {
  for_rows(m_ - skip, [&](int64_t row, float*) {
    float* x = rows(s.x.rows).row(row);
    const float* gate = rows(s.gate.rows).row(skip + row);
    if (s.gate_first) {
      ops_.silu_mul(gate, x, s.x.width, x);
      const float* gain = vector(layer, s.norm.gain);
      for (int64_t i = 0; i < s.x.width; i += s.dim)
        ops_.rms_norm(x + i, gain + i, s.dim, s.norm.eps, x + i);
      return;
    }
    if (!s.norm.present()) return ops_.sigmoid_mul(gate, x, s.x.width, x);
    normalize(s.norm, layer, x, s.x.width);
    ops_.silu_mul(gate, x, s.x.width, x);
  });
}

// Normalizes each run of norm.width values by itself.
void CpuExecutor::normalize(const Norm& norm, int layer, float* x, int64_t width) const {
  const float* gain = vector(layer, norm.gain);
  for (int64_t i = 0; i < width && norm.present(); i += norm.width)
    ops_.rms_norm(x + i, gain, norm.width, norm.eps, x + i);
}

// Separates queries from their gates.
void CpuExecutor::take_gates(const step::PrepareHeads& s, int64_t row) {
  const int64_t dim = s.shape.dim;
  const float* from = rows(s.query.rows).row(row);
  float *q = rows(s.to.rows).row(row), *gate = rows(s.gates.rows).row(row);
  for (int64_t h = 0; h < s.shape.heads; ++h) {
    std::copy_n(from + 2 * h * dim, dim, q + h * dim);
    std::copy_n(from + (2 * h + 1) * dim, dim, gate + h * dim);
  }
}

// Turns the first values of every head by the angles of the row's position. Heads begin `dim`
// values apart.
void CpuExecutor::turn_heads(int index, float* x, int64_t heads, int64_t dim, int64_t row) {
  if (index < 0) return;
  const Rope& rope = ropes_[static_cast<size_t>(index)];
  const int64_t at = row * rope.pairs();
  ops_.rope(x, static_cast<int>(heads), static_cast<int>(dim), static_cast<int>(2 * rope.pairs()),
            rope.cos.data() + at, rope.sin.data() + at);
}

// Makes the row's key: the normalized latent and, after it, the turned shared key.
void CpuExecutor::join_latent(const step::PrepareHeads& s, int layer, int64_t row) {
  const Norm& norm = model_.input(layer, s.latent_input).norm;
  float *shared = rows(s.shared_key.rows).row(row), *key = rows(s.key.rows).row(row);
  ops_.rms_norm(rows(s.latent.rows).row(row), vector(layer, norm.gain), s.latent.width, norm.eps,
                key);
  turn_heads(s.rope, shared, 1, s.shared_key.width, row);
  std::copy_n(shared, s.shared_key.width, key + s.latent.width);
}

// Applies this norm and the rope, in the order that the step says, and then unit length to heads of
// queries or keys.
void CpuExecutor::prepare_heads(const step::PrepareHeads& s, const Norm& norm, int64_t heads,
                                float* x, int layer, int64_t row) {
  if (!s.options.norms_turned) normalize(norm, layer, x, heads * s.shape.dim);
  turn_heads(s.rope, x, heads, s.shape.dim, row);
  if (s.options.norms_turned) normalize(norm, layer, x, heads * s.shape.dim);
  normalize(s.unit(), layer, x, heads * s.shape.dim);
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
  if (s.latent.present()) return join_latent(s, layer, row);
  if (!s.key.present()) return;
  float *key = rows(s.key.rows).row(row), *value = rows(s.value.rows).row(row);
  if (s.values_are_keys) std::copy_n(key, s.key.width, value);
  normalize(s.value_norm(), layer, value, s.value.width);
  prepare_heads(s, s.key_norm, shape.kv_heads, key, layer, row);
}

void CpuExecutor::perform(const step::PrepareHeads& s, int layer, int64_t) {
  for_rows(m_, [&](int64_t row, float*) { prepare_row(s, layer, row); });
  if (!s.key.present()) return;
  RowBuffer& k = rows(s.key.rows);
  if (observer_ && s.latent.present())
    observer_(model_.input(layer, s.latent_input), {k.row(0), k.stride, m_, -1, nullptr});
  cache_->store(layer, k.row(0), s.value.present() ? rows(s.value.rows).row(0) : nullptr, k.stride);
}

// Row 0 of the buffers that this reads and writes belongs to row `skip` of the batch.
void CpuExecutor::perform(const step::MultiplyHeads& s, int layer, int64_t skip) {
  const Linear& linear = model_.matrix(layer, s.matrix);
  const int64_t part = s.rows * s.cols * dtype_size(linear.format->dtype);
  const int64_t count = m_ - skip, width = s.kept + s.cols, wide = s.rows + s.kept;
  RowBuffer &from = rows(s.from.rows), &to = rows(s.to.rows);
  model_.pool().for_each(s.heads, [&](int64_t head) {
    const float* x = from.row(0) + head * width;
    float* y = to.row(0) + head * wide;
    ops_.matmul_dense(linear.format->dtype, linear.dense.data.data() + head * part, s.cols,
                      x + s.kept, from.stride, count, y, to.stride, 0, s.rows);
    for (int64_t i = 0; i < count; ++i)
      std::copy_n(x + i * from.stride, s.kept, y + i * to.stride + s.rows);
  });
}

// Computes attention of the queries of run `index`, which begins at row `first` of the batch. It
// writes to `mixed`, whose row 0 belongs to row `skip` of the batch.
void CpuExecutor::attend_run(const step::Attend& s, int layer, size_t index, int64_t first,
                             int64_t skip) {
  const int64_t group = s.shape.heads / s.shape.kv_heads;
  const int64_t queries = std::max<int64_t>(1, kAttentionRows / group);
  const int64_t begin = std::max(first, skip), end = first + runs_[index].rows;
  const int64_t blocks = (end - begin + queries - 1) / queries;
  // The query heads of one KV head are divided among threads that would have nothing to do
  // otherwise, unless each piece would have to decode the positions again.
  const int64_t pieces = blocks * s.shape.kv_heads;
  const bool whole = s.shape.kv_heads > 1 || model_.cache.coded() || group < 2 * kLeastHeads;
  const int64_t parts =
      whole ? 1 : std::clamp(model_.pool().size() / pieces, int64_t{1}, group / kLeastHeads);
  const int64_t of_part = (group + parts - 1) / parts;
  RowBuffer &q = rows(s.query.rows), &out = rows(s.to.rows);
  const int64_t out_dim = s.value_dim;
  model_.pool().for_each(pieces * parts, [&](int64_t i, int thread) {
    const int64_t part = i % parts * of_part, head = i / parts % s.shape.kv_heads;
    const int64_t row = begin + i / parts / s.shape.kv_heads * queries;
    const int64_t heads = std::min(of_part, group - part), first_head = head * group + part;
    if (heads <= 0) return;
    QueryRows block = {index,
                       row - first,
                       std::min(queries, end - row),
                       head,
                       heads,
                       q.row(row) + first_head * s.shape.dim,
                       q.stride,
                       out.row(row - skip) + first_head * out_dim,
                       out.stride,
                       s.options};
    if (!together_.empty()) block.together = together_[index];
    const auto at = static_cast<size_t>(thread);
    if (s.sinks >= 0) block.log_sums = log_sums_[at].data();
    cache_->attend(s.cache, block, thread, scratch_[at].data());
    if (s.sinks >= 0) add_sinks(vector(layer, s.sinks) + first_head, out_dim, block);
  });
}

}  // namespace walsh
