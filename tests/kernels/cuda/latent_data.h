// Tests attention to latents, and what is done in front of it and behind, against the CPU, on GPUs
// and on the host.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/aligned.h"
#include "base/half.h"
#include "base/random.h"
#include "cuda_buffers.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/rows/latent_rows.h"
#include "kernels/ops.h"

namespace walsh::cuda {

using test::to_device;
using test::to_host;

struct LatentShape {
  int rank, turned, heads;
  int64_t window = 0;

  int width() const { return rank + turned; }
};

inline std::vector<float> normal_values(int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<float>(random.normal()));
  return values;
}

// Holds two sequences whose pages lie in reverse order, with NaN where nothing may be read. Rows
// are the last `m` positions of the second one, and one of the first.
struct LatentProblem {
  LatentShape shape;
  int64_t length, per_sequence, m;
  std::vector<int32_t> table, positions, sequences;
  std::vector<uint16_t> latents, shared_keys;  // of pages
  std::vector<float> q;
  AttentionOptions options;

  LatentProblem(const LatentShape& s, int64_t positions_of_text, int64_t rows, uint64_t seed)
      : shape(s),
        length(positions_of_text),
        per_sequence((length + kPageTokens - 1) / kPageTokens),
        m(rows + 1) {
    for (int64_t i = 2 * per_sequence; i > 0; --i)
      table.push_back(static_cast<int32_t>(i));
    for (int64_t i = 0; i < rows; ++i) {
      positions.push_back(static_cast<int32_t>(length - rows + i));
      sequences.push_back(1);
    }
    positions.push_back(static_cast<int32_t>(length / 2));
    sequences.push_back(0);
    const auto fill = [&](int dim, uint64_t from) {
      std::vector<uint16_t> pool(static_cast<size_t>((2 * per_sequence + 1) * kPageTokens * dim),
                                 0x7e00);
      const std::vector<float> values = normal_values(2 * length * dim, from);
      for (int64_t i = 0; i < 2 * length; ++i)
        for (int d = 0; d < dim; ++d)
          pool[static_cast<size_t>(slot(i / length, i % length) * dim + d)] =
              f32_to_f16(values[static_cast<size_t>(i * dim + d)]);
      return pool;
    };
    latents = fill(shape.rank, seed);
    shared_keys = fill(shape.turned, seed + 1);
    q = normal_values(m * shape.heads * shape.width(), seed + 2);
    options.window = shape.window;
    options.scale = static_cast<float>(1 / std::sqrt(shape.width()));
  }

  int64_t slot(int64_t sequence, int64_t position) const {
    const int64_t page =
        table[static_cast<size_t>(sequence * per_sequence + position / kPageTokens)];
    return page * kPageTokens + position % kPageTokens;
  }
  int64_t ldq() const { return int64_t{shape.heads} * shape.width(); }
  int64_t ldo() const { return int64_t{shape.heads} * shape.rank; }

  // Computes the CPU's attention to the same latents, each with its shared key behind it.
  std::vector<float> expected() const {
    std::vector<float> out(static_cast<size_t>(m * ldo()));
    const int width = shape.width();
    const int64_t capacity = per_sequence * kPageTokens;
    AlignedArray<float> scratch(static_cast<size_t>(attention_scratch(1, capacity, width)));
    for (int64_t t = 0; t < m; ++t) {
      const int64_t sequence = sequences[static_cast<size_t>(t)];
      std::vector<uint16_t> rows(static_cast<size_t>(capacity * width));
      for (int64_t i = 0; i < length; ++i) {
        const int64_t at = slot(sequence, i);
        std::copy_n(latents.begin() + at * shape.rank, shape.rank, rows.begin() + i * width);
        std::copy_n(shared_keys.begin() + at * shape.turned, shape.turned,
                    rows.begin() + i * width + shape.rank);
      }
      const KvView view{rows.data(), rows.data(), capacity, 1, width, nullptr, shape.rank};
      ops().attention({view, 0, shape.heads, 1, positions[static_cast<size_t>(t)], options,
                       q.data() + t * ldq(), ldq(), out.data() + t * ldo(), ldo(), nullptr,
                       scratch.data()});
    }
    return out;
  }

  std::vector<float> run() const {
    KvPool pool(1, shape.turned, shape.rank, 2 * per_sequence + 1);
    pool.keys = to_device(shared_keys);
    pool.values = to_device(latents);
    const Buffer pages = to_device(table), at = to_device(positions), of = to_device(sequences);
    const Buffer queries = to_device(q);
    const Buffer out(static_cast<uint64_t>(m * ldo()) * sizeof(float));
    const AttentionScratch scratch(m, shape.heads, 1, shape.rank);
    AttentionCall call;
    call.cache = &pool;
    call.table = {pages.as<const int32_t>(), per_sequence};
    call.rows = {at.as<const int32_t>(), of.as<const int32_t>()};
    call.m = m;
    call.heads = shape.heads;
    call.options = options;
    call.q = queries.as<const float>();
    call.ldq = ldq();
    call.out = out.as<float>();
    call.ldo = ldo();
    attend_latents(call, length, scratch, nullptr);
    synchronize(nullptr);
    return to_host<float>(out);
  }
};

inline void expect_latents_attended(const LatentProblem& p) {
  const std::vector<float> expected = p.expected(), out = p.run();
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_NEAR(out[i], expected[i], 2e-5)
        << "rank " << p.shape.rank << " heads " << p.shape.heads << " value " << i;
  }
}

// Checks that the rows of two sequences are kept at their places, and that queries and shared keys
// turn.
inline void expect_latents_kept(const LatentShape& shape, int64_t m) {
  const int head_dim = shape.turned + 24, pairs = shape.turned / 2;
  const int64_t per_sequence = 2, ld = shape.heads * int64_t{head_dim};
  std::vector<int32_t> table{3, 1, 4, 2}, positions, sequences;
  for (int64_t i = 0; i < m; ++i) {
    positions.push_back(static_cast<int32_t>(60 + i / 2));
    sequences.push_back(static_cast<int32_t>(i % 2));
  }
  const std::vector<float> q = normal_values(m * ld, 1), latent = normal_values(m * shape.rank, 2),
                           key = normal_values(m * shape.turned, 3),
                           gain = normal_values(shape.rank, 4),
                           angles = normal_values(128 * pairs, 5);
  std::vector<float> cos, sin;
  for (const float angle : angles) {
    cos.push_back(std::cos(angle));
    sin.push_back(std::sin(angle));
  }
  KvPool pool(1, shape.turned, shape.rank, 5);
  const Buffer pages = to_device(table), at = to_device(positions), of = to_device(sequences);
  const Buffer queries = to_device(q), latents = to_device(latent), keys = to_device(key),
               gains = to_device(gain), cosines = to_device(cos), sines = to_device(sin);
  LatentRows call;
  call.q = queries.as<float>();
  call.ldq = ld;
  call.heads = shape.heads;
  call.head_dim = head_dim;
  call.latent = latents.as<float>();
  call.ld_latent = shape.rank;
  call.gain = gains.as<float>();
  call.eps = 1e-6f;
  call.shared_key = keys.as<float>();
  call.ld_shared = shape.turned;
  call.cos = cosines.as<float>();
  call.sin = sines.as<float>();
  call.pairs = pairs;
  call.m = m;
  keep_latents(call, pool, {pages.as<const int32_t>(), per_sequence},
               {at.as<const int32_t>(), of.as<const int32_t>()}, nullptr);
  synchronize(nullptr);
  const auto turned_queries = to_host<float>(queries);
  const auto kept_latents = to_host<uint16_t>(pool.values),
             kept_keys = to_host<uint16_t>(pool.keys);
  for (int64_t t = 0; t < m; ++t) {
    const int64_t position = positions[static_cast<size_t>(t)];
    const float *c = cos.data() + position * pairs, *s = sin.data() + position * pairs;
    std::vector<float> expected_q(q.begin() + t * ld, q.begin() + (t + 1) * ld);
    ops().rope(expected_q.data(), shape.heads, head_dim, shape.turned, c, s);
    for (int64_t i = 0; i < ld; ++i)
      ASSERT_NEAR(turned_queries[static_cast<size_t>(t * ld + i)],
                  expected_q[static_cast<size_t>(i)], 1e-5);
    std::vector<float> normed(static_cast<size_t>(shape.rank)),
        turned(key.begin() + t * shape.turned, key.begin() + (t + 1) * shape.turned);
    ops().rms_norm(latent.data() + t * shape.rank, gain.data(), shape.rank, 1e-6f, normed.data());
    ops().rope(turned.data(), 1, shape.turned, shape.turned, c, s);
    const int64_t page =
        table[static_cast<size_t>(sequences[static_cast<size_t>(t)] * 2 + position / kPageTokens)];
    const int64_t slot = page * kPageTokens + position % kPageTokens;
    for (int d = 0; d < shape.rank; ++d)
      ASSERT_NEAR(f16_to_f32(kept_latents[static_cast<size_t>(slot * shape.rank + d)]),
                  normed[static_cast<size_t>(d)], 2e-3);
    for (int d = 0; d < shape.turned; ++d)
      ASSERT_NEAR(f16_to_f32(kept_keys[static_cast<size_t>(slot * shape.turned + d)]),
                  turned[static_cast<size_t>(d)], 2e-3);
  }
}

inline void expect_heads_multiplied(DType type, int heads, int rows, int cols, int kept,
                                    int64_t m) {
  const std::vector<float> w = normal_values(int64_t{heads} * rows * cols, 6),
                           x = normal_values(m * heads * (kept + cols), 7);
  std::vector<uint16_t> halves;
  std::vector<float> stored = w;
  for (float& v : stored) {
    if (type == DType::f32) break;
    halves.push_back(type == DType::f16 ? f32_to_f16(v) : f32_to_bf16(v));
    v = type == DType::f16 ? f16_to_f32(halves.back()) : bf16_to_f32(halves.back());
  }
  const Buffer weights = type == DType::f32 ? to_device(w) : to_device(halves);
  const Buffer in = to_device(x);
  const Buffer out(static_cast<uint64_t>(m * heads * (rows + kept)) * sizeof(float));
  HeadProducts call;
  call.type = type;
  call.w = weights.as<const void>();
  call.heads = heads;
  call.rows = rows;
  call.cols = cols;
  call.kept = kept;
  call.x = in.as<const float>();
  call.ldx = heads * (kept + cols);
  call.y = out.as<float>();
  call.ldy = heads * (rows + kept);
  call.m = m;
  multiply_heads(call, nullptr);
  synchronize(nullptr);
  const auto y = to_host<float>(out);
  for (int64_t t = 0; t < m; ++t) {
    for (int h = 0; h < heads; ++h) {
      const float* from = x.data() + t * call.ldx + h * (kept + cols);
      const float* to = y.data() + t * call.ldy + h * (rows + kept);
      for (int i = 0; i < kept; ++i)
        ASSERT_EQ(to[rows + i], from[i]);
      for (int r = 0; r < rows; ++r) {
        double sum = 0;
        for (int c = 0; c < cols; ++c)
          sum += double{stored[static_cast<size_t>((h * rows + r) * cols + c)]} *
                 double{from[kept + c]};
        ASSERT_NEAR(to[r], sum, 1e-4) << "token " << t << " head " << h << " row " << r;
      }
    }
  }
}

}  // namespace walsh::cuda
