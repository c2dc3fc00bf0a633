// Specifies the gated delta rule in chunks.
#include <cmath>
#include <cstdint>

#include "kernels/isa_tables.h"

namespace walsh::ref {
namespace {

// Returns the dot product of x and a column of a matrix [size][width].
float dot(const float* x, const float* column, int64_t size, int64_t width) {
  float sum = 0;
  for (int64_t d = 0; d < size; ++d)
    sum += x[d] * column[d * width];
  return sum;
}

struct ValueHead {
  float *state, *updates, *sums;
};

void add_row(const DeltaShape& shape, const ValueHead& head, const float* keys,
             const DeltaRows& rows, int64_t value, int64_t t, int64_t i) {
  const int64_t width = shape.value_dim;
  const float *q = rows.q + i * rows.ld, *k = rows.k + i * rows.ld;
  const float* v = rows.v + i * rows.ld + value * width;
  float* update = head.updates + t * width;
  float* out = rows.out + (i - rows.first) * rows.ld_out + value * width;
  const float before = t == 0 ? 0 : head.sums[t - 1];
  const float sum = head.sums[t] = before + rows.log_decay[i * rows.ld_decay + value];
  for (int64_t c = 0; c < width; ++c) {
    float seen = 0;
    if (!shape.additive) {
      seen = std::exp(sum) * dot(k, head.state + c, shape.key_dim, width);
      for (int64_t j = 0; j < t; ++j)
        seen += std::exp(sum - head.sums[j]) * dot(k, keys + j, shape.key_dim, kDeltaChunk) *
                head.updates[j * width + c];
    }
    update[c] = rows.strength[i * rows.ld_strength + value] * (v[c] - seen);
    if (i < rows.first) continue;
    out[c] = std::exp(sum) * dot(q, head.state + c, shape.key_dim, width);
    if (rows.skip != nullptr) out[c] += rows.skip[value] * v[c];
    for (int64_t j = 0; j <= t; ++j)
      out[c] += std::exp(sum - head.sums[j]) * dot(q, keys + j, shape.key_dim, kDeltaChunk) *
                head.updates[j * width + c];
  }
}

void advance(const DeltaShape& shape, const ValueHead& head, const float* keys) {
  const float sum = head.sums[kDeltaChunk - 1];
  for (int64_t d = 0; d < shape.key_dim; ++d) {
    for (int64_t c = 0; c < shape.value_dim; ++c) {
      float& s = head.state[d * shape.value_dim + c];
      s *= std::exp(sum);
      for (int64_t j = 0; j < kDeltaChunk; ++j)
        s += std::exp(sum - head.sums[j]) * keys[d * kDeltaChunk + j] *
             head.updates[j * shape.value_dim + c];
    }
  }
}

}  // namespace

void delta_rule(const DeltaShape& shape, const DeltaState& state, const DeltaRows& rows,
                int64_t used, int64_t m, float*) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t d = 0; d < shape.key_dim; ++d)
      state.keys[d * kDeltaChunk + used + i] = rows.k[i * rows.ld + d];
  for (int64_t value = 0; value < shape.values; ++value) {
    const ValueHead head{state.states + value * shape.key_dim * shape.value_dim,
                         state.updates + value * kDeltaChunk * shape.value_dim,
                         state.sums + value * kDeltaChunk};
    for (int64_t i = 0; i < m; ++i)
      add_row(shape, head, state.keys, rows, value, used + i, i);
    if (used + m == kDeltaChunk) advance(shape, head, state.keys);
  }
}

}  // namespace walsh::ref
