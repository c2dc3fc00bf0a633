// Compares attention with the CPU's, for tests on GPUs and on the host.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/aligned.h"
#include "base/half.h"
#include "base/random.h"
#include "cuda_buffers.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/ops.h"

namespace walsh::cuda {

using test::to_device;
using test::to_host;

constexpr uint16_t kHalfNaN = 0x7e00;
constexpr float kUntouched = -7.0f;

struct AttentionShape {
  int head_dim, heads, kv_heads;
  int64_t window;
  int64_t chunk = 0;
};

// Holds sequences whose pages are scattered over the pool, which holds NaN where nothing may be
// read.
struct AttentionProblem {
  AttentionShape shape;
  std::vector<int32_t> positions, sequences;  // per row
  std::vector<int64_t> lengths;               // per sequence
  int64_t per_sequence = 0, capacity = 0;
  std::vector<int32_t> table;
  std::vector<uint16_t> keys, values;  // [sequence][kv_head][capacity][head_dim]
  std::vector<float> q;
  int64_t ldq, ldo;
  AttentionOptions options;
  std::vector<float> sinks;  // per head, or empty

  // Makes rows of decoding, which stand at the ends of their sequences; these have the given
  // lengths.
  AttentionProblem(const AttentionShape& s, const std::vector<int64_t>& sequence_lengths,
                   uint64_t seed, double size = 1)
      : shape(s), lengths(sequence_lengths) {
    for (size_t i = 0; i < lengths.size(); ++i) {
      positions.push_back(static_cast<int32_t>(lengths[i] - 1));
      sequences.push_back(static_cast<int32_t>(i));
    }
    fill(seed, size);
  }
  // Makes a prompt: the last m positions of a sequence.
  AttentionProblem(const AttentionShape& s, int64_t length, int64_t m, uint64_t seed,
                   double size = 1)
      : shape(s), lengths{70, length} {
    for (int64_t i = 0; i < m; ++i) {
      positions.push_back(static_cast<int32_t>(length - m + i));
      sequences.push_back(1);
    }
    fill(seed, size);
  }

  int64_t rows() const { return static_cast<int64_t>(positions.size()); }
  size_t at(int64_t sequence, int head, int64_t position) const {
    return static_cast<size_t>(((sequence * shape.kv_heads + head) * capacity + position) *
                               shape.head_dim);
  }

  void fill(uint64_t seed, double size) {
    Random random(seed);
    per_sequence = (longest() + kPageTokens - 1) / kPageTokens + 1;
    capacity = per_sequence * kPageTokens;
    const auto count = static_cast<int64_t>(lengths.size());
    for (int64_t i = 0; i < count * per_sequence; ++i)
      table.push_back(static_cast<int32_t>(i + 1));
    for (size_t i = table.size(); i > 1; --i)
      std::swap(table[i - 1], table[random.below(i)]);
    keys.assign(at(count, 0, 0), kHalfNaN);
    values = keys;
    for (int64_t s = 0; s < count; ++s) {
      for (int h = 0; h < shape.kv_heads; ++h) {
        for (size_t i = at(s, h, 0); i < at(s, h, lengths[static_cast<size_t>(s)]); ++i) {
          keys[i] = f32_to_f16(static_cast<float>(random.normal()));
          values[i] = f32_to_f16(static_cast<float>(random.normal()));
        }
      }
    }
    ldq = shape.heads * shape.head_dim + 6;
    ldo = shape.heads * shape.head_dim + 2;
    options.window = shape.window;
    options.chunk = shape.chunk;
    options.scale = static_cast<float>(1 / std::sqrt(shape.head_dim));
    for (int64_t i = 0; i < rows() * ldq; ++i)
      q.push_back(static_cast<float>(size * random.normal()));
  }

  std::vector<uint16_t> paged(const std::vector<uint16_t>& dense) const {
    const int64_t page_values = int64_t{kPageTokens} * shape.head_dim;
    std::vector<uint16_t> out(
        (table.size() + 1) * static_cast<size_t>(page_values) * static_cast<size_t>(shape.kv_heads),
        kHalfNaN);
    for (size_t i = 0; i < table.size(); ++i) {
      const auto sequence = static_cast<int64_t>(i) / per_sequence;
      const int64_t first = static_cast<int64_t>(i) % per_sequence * kPageTokens;
      for (int h = 0; h < shape.kv_heads; ++h) {
        std::copy_n(dense.begin() + static_cast<std::ptrdiff_t>(at(sequence, h, first)),
                    page_values, out.begin() + (table[i] * shape.kv_heads + h) * page_values);
      }
    }
    return out;
  }

  std::vector<float> expected() const {
    std::vector<float> out(static_cast<size_t>(rows() * ldo), kUntouched);
    AlignedArray<float> scratch(
        static_cast<size_t>(attention_scratch(1, capacity, shape.head_dim)));
    const int group = shape.heads / shape.kv_heads;
    for (int64_t t = 0; t < rows(); ++t) {
      const int64_t sequence = sequences[static_cast<size_t>(t)];
      const KvView view{keys.data() + at(sequence, 0, 0), values.data() + at(sequence, 0, 0),
                        capacity, shape.kv_heads, shape.head_dim};
      for (int h = 0; h < shape.kv_heads; ++h) {
        const int64_t column = int64_t{h} * group * shape.head_dim;
        std::vector<float> log_sums(static_cast<size_t>(group));
        ops().attention({view, h, group, 1, positions[static_cast<size_t>(t)], options,
                         q.data() + t * ldq + column, ldq, out.data() + t * ldo + column, ldo,
                         log_sums.data(), scratch.data()});
        for (int i = 0; i < group * shape.head_dim && !sinks.empty(); ++i) {
          const int head = i / shape.head_dim;
          out[static_cast<size_t>(t * ldo + column + i)] /=
              1 + std::exp(sinks[static_cast<size_t>(h * group + head)] -
                           log_sums[static_cast<size_t>(head)]);
        }
      }
    }
    return out;
  }

  int64_t longest() const { return *std::max_element(lengths.begin(), lengths.end()); }

  // Returns the result of attend(call, scratch), run twice with the same scratch, which must give
  // the same bits.
  template <typename Attend>
  std::vector<float> run(const Attend& attend) const {
    KvPool pool(shape.kv_heads, shape.head_dim, static_cast<int64_t>(table.size()) + 1);
    pool.keys = to_device(paged(keys));
    pool.values = to_device(paged(values));
    const Buffer pages = to_device(table), at = to_device(positions), of = to_device(sequences);
    const Buffer queries = to_device(q), of_sinks = to_device(sinks);
    const std::vector<float> untouched(static_cast<size_t>(rows() * ldo), kUntouched);
    const AttentionScratch scratch(rows(), shape.heads, shape.kv_heads, shape.head_dim);
    AttentionCall call;
    call.cache = &pool;
    call.table = {pages.as<const int32_t>(), per_sequence};
    call.rows = {at.as<const int32_t>(), of.as<const int32_t>()};
    call.m = rows();
    call.heads = shape.heads;
    call.options = options;
    call.sinks = sinks.empty() ? nullptr : of_sinks.as<const float>();
    call.q = queries.as<const float>();
    call.ldq = ldq;
    call.ldo = ldo;
    std::vector<float> first;
    for (int repeat = 0; repeat < 2; ++repeat) {
      const Buffer out = to_device(untouched);
      call.out = out.as<float>();
      attend(call, scratch);
      synchronize(nullptr);
      std::vector<float> result = to_host<float>(out);
      if (repeat == 0) {
        first = std::move(result);
      } else {
        EXPECT_TRUE(std::equal(first.begin(), first.end(), result.begin(), [](float a, float b) {
          return a == b || (std::isnan(a) && std::isnan(b));
        })) << "a second run differs";
      }
    }
    return first;
  }
};

// Checks what attend(call, scratch) gives against the CPU's results.
template <typename Attend>
void expect_attention(const AttentionProblem& p, const Attend& attend, double tolerance) {
  const auto expected = p.expected(), out = p.run(attend);
  double worst = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_FALSE(std::isnan(out[i]))
        << "row " << i / static_cast<size_t>(p.ldo) << " column " << i % static_cast<size_t>(p.ldo)
        << " head_dim " << p.shape.head_dim;
    worst = std::max(worst, std::abs(double{out[i]} - double{expected[i]}));
  }
  EXPECT_LT(worst, tolerance) << "head_dim " << p.shape.head_dim << " heads " << p.shape.heads
                              << "/" << p.shape.kv_heads << " window " << p.shape.window
                              << " chunk " << p.shape.chunk << " rows " << p.rows();
}

// Decoding rounds nothing to fp16 but the cache: what is left, for logits of standard deviation
// `size` and normal values, are sums in float32, which tensor cores cut off, and the functions of
// the softmax.
inline void expect_decoded(const AttentionProblem& p, double size = 1, int64_t longest = 0) {
  expect_attention(
      p,
      [&](const AttentionCall& call, const AttentionScratch& scratch) {
        attend_decode(call, std::max(longest, p.longest()), scratch, nullptr);
      },
      1e-5 * (1 + size) + 1e-6 * double{p.options.logit_cap});
}

}  // namespace walsh::cuda
