// Specifies attention: softmax(scale * q K^T) V over the positions that a query sees.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/half.h"
#include "kernels/isa_tables.h"

namespace walsh::ref {
namespace {

float capped(float logit, float cap) {
  return cap == 0 ? logit : cap * std::tanh(logit / cap);
}

// Attends from one query to `count` positions from `begin` on; `weights` is scratch[count]. Returns
// the logarithm of the sum of e^logit.
float attend(const float* q, const KvView& kv, int kv_head, int64_t begin, int64_t count,
             const AttentionOptions& options, float* out, float* weights) {
  const int head_dim = kv.head_dim;
  float largest = -std::numeric_limits<float>::infinity();
  for (int64_t j = 0; j < count; ++j) {
    const uint16_t* key = kv.keys + kv.offset(kv_head, begin + j);
    double dot = 0;
    for (int d = 0; d < head_dim; ++d)
      dot += double{q[d]} * double{f16_to_f32(key[d])};
    weights[j] = capped(static_cast<float>(dot * double{options.scale}), options.logit_cap);
    largest = std::max(largest, weights[j]);
  }
  double total = 0;
  for (int64_t j = 0; j < count; ++j) {
    weights[j] = std::exp(weights[j] - largest);
    total += double{weights[j]};
  }
  for (int d = 0; d < kv.value_width(); ++d) {
    double sum = 0;
    for (int64_t j = 0; j < count; ++j) {
      const uint16_t* value = kv.values + kv.offset(kv_head, begin + j);
      sum += double{weights[j]} * double{f16_to_f32(value[d])};
    }
    out[d] = static_cast<float>(sum / total);
  }
  return largest + static_cast<float>(std::log(total));
}

}  // namespace

void attention(const GroupAttention& call) {
  for (int64_t i = 0; i < call.m; ++i) {
    const int64_t begin = call.first(i), count = call.end(i) - begin;
    for (int h = 0; h < call.heads; ++h) {
      const float log_sum = attend(call.query(i, h), call.kv, call.kv_head, begin, count,
                                   call.options, call.result(i, h), call.scratch);
      if (call.log_sums != nullptr) call.log_sums[i * call.heads + h] = log_sum;
    }
  }
}

float weigh(float* row, int64_t n, int64_t begin, int64_t end, const AttentionOptions& options,
            float shift, float* largest, float* total) {
  const float before = *largest;
  for (int64_t i = begin; i < end; ++i) {
    row[i] = capped(std::fma(row[i], options.scale, shift), options.logit_cap);
    *largest = std::max(*largest, row[i]);
  }
  for (int64_t i = 0; i < n; ++i)
    row[i] = i >= begin && i < end ? std::exp(row[i] - *largest) : 0.0f;
  const float shrink = *largest > before ? std::exp(before - *largest) : 1.0f;
  *total *= shrink;
  for (int64_t i = begin; i < end; ++i)
    *total += row[i];
  return shrink;
}

void scale_weights(const float* weights, const uint16_t* scales, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i)
    out[i] = weights[i] == 0 ? 0 : weights[i] * f16_to_f32(scales[i]);
}

}  // namespace walsh::ref
