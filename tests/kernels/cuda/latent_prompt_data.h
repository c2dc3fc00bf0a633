// Tests attention of prompts to latents against the formula, on GPUs and on the host.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cuda/attention/latent_prompt.h"
#include "kernels/cuda/latent_data.h"

namespace walsh::cuda {

struct PromptShape {
  int rank, turned, heads, key_dim, value_dim;
  int64_t window = 0, chunk = 0;
  DType type = DType::f16;
  uint64_t scratch = HeadScratch::kMostBytes;

  int own() const { return key_dim - turned; }
};

// Holds numbers of a plain type, as they are stored and as they are read.
struct PlainNumbers {
  std::vector<float> values;
  Buffer stored;

  PlainNumbers(DType type, int64_t count, double size, uint64_t seed)
      : values(normal_values(count, seed)) {
    std::vector<uint16_t> halves;
    for (float& v : values) {
      v *= static_cast<float>(size);
      if (type == DType::f32) continue;
      halves.push_back(type == DType::f16 ? f32_to_f16(v) : f32_to_bf16(v));
      v = type == DType::f16 ? f16_to_f32(halves.back()) : bf16_to_f32(halves.back());
    }
    stored = type == DType::f32 ? to_device(values) : to_device(halves);
  }
};

// Holds the last `m` positions of the second of two sequences (LatentProblem), whose queries have
// heads of key_dim values, first those for the shared key.
struct PromptProblem {
  PromptShape shape;
  LatentProblem latents;
  int64_t m;
  PlainNumbers keys, values;  // the parts of k, transposed, and of v
  std::vector<float> q;
  AttentionOptions options;

  PromptProblem(const PromptShape& s, int64_t length, int64_t rows, uint64_t seed)
      : shape(s),
        latents({s.rank, s.turned, s.heads}, length, rows, seed),
        m(rows),
        keys(s.type, int64_t{s.heads} * s.rank * s.own(), 1 / std::sqrt(s.rank), seed + 10),
        values(s.type, int64_t{s.heads} * s.rank * s.value_dim, 1 / std::sqrt(s.rank), seed + 11),
        q(normal_values(m * ldq(), seed + 12)) {
    options.window = s.window;
    options.chunk = s.chunk;
    options.scale = static_cast<float>(1 / std::sqrt(s.key_dim));
  }

  int64_t ldq() const { return int64_t{shape.heads} * shape.key_dim; }
  int64_t ldo() const { return int64_t{shape.heads} * shape.value_dim; }

  // Return the keys [length][key_dim] and values [length][value_dim] of a head.
  std::vector<double> keys_of(int head) const {
    std::vector<double> all;
    for (int64_t i = 0; i < latents.length; ++i) {
      const uint16_t* latent = latents.latents.data() + latents.slot(1, i) * shape.rank;
      const uint16_t* shared = latents.shared_keys.data() + latents.slot(1, i) * shape.turned;
      for (int d = 0; d < shape.turned; ++d)
        all.push_back(double{f16_to_f32(shared[d])});
      for (int d = 0; d < shape.own(); ++d) {
        double sum = 0;
        for (int c = 0; c < shape.rank; ++c)
          sum += double{f16_to_f32(latent[c])} *
                 double{keys.values[static_cast<size_t>(
                     (int64_t{head} * shape.rank + c) * shape.own() + d)]};
        all.push_back(sum);
      }
    }
    return all;
  }
  std::vector<double> values_of(int head) const {
    std::vector<double> all;
    for (int64_t i = 0; i < latents.length; ++i) {
      const uint16_t* latent = latents.latents.data() + latents.slot(1, i) * shape.rank;
      for (int d = 0; d < shape.value_dim; ++d) {
        double sum = 0;
        for (int c = 0; c < shape.rank; ++c)
          sum += double{f16_to_f32(latent[c])} *
                 double{values.values[static_cast<size_t>(
                     (int64_t{head} * shape.value_dim + d) * shape.rank + c)]};
        all.push_back(sum);
      }
    }
    return all;
  }

  std::vector<double> expected() const {
    std::vector<double> out(static_cast<size_t>(m * ldo()));
    for (int head = 0; head < shape.heads; ++head) {
      const std::vector<double> k = keys_of(head), v = values_of(head);
      for (int64_t t = 0; t < m; ++t) {
        const float* query = q.data() + t * ldq() + head * shape.key_dim;
        double* to = out.data() + t * ldo() + head * shape.value_dim;
        double total = 0;
        const int64_t position = latents.length - m + t;
        for (int64_t i = options.first_seen(position); i <= position; ++i) {
          double logit = 0;
          for (int d = 0; d < shape.key_dim; ++d)
            logit += double{query[d]} * k[static_cast<size_t>(i * shape.key_dim + d)];
          const double weight = std::exp(logit * double{options.scale});
          total += weight;
          for (int d = 0; d < shape.value_dim; ++d)
            to[d] += weight * v[static_cast<size_t>(i * shape.value_dim + d)];
        }
        for (int d = 0; d < shape.value_dim; ++d)
          to[d] /= total;
      }
    }
    return out;
  }

  std::vector<float> run() const {
    KvPool pool(1, shape.turned, shape.rank, 2 * latents.per_sequence + 1);
    pool.keys = to_device(latents.shared_keys);
    pool.values = to_device(latents.latents);
    const Buffer pages = to_device(latents.table), at = to_device(latents.positions),
                 of = to_device(latents.sequences), queries = to_device(q);
    const Buffer out(static_cast<uint64_t>(m * ldo()) * sizeof(float));
    const HeadScratch scratch(latents.length, shape.heads, shape.key_dim, shape.value_dim,
                              shape.scratch);
    LatentPrompt call;
    call.cache = &pool;
    call.table = {pages.as<const int32_t>(), latents.per_sequence};
    call.rows = {at.as<const int32_t>(), of.as<const int32_t>()};
    call.m = m;
    call.heads = shape.heads;
    call.options = options;
    call.q = queries.as<const float>();
    call.ldq = ldq();
    call.out = out.as<float>();
    call.ldo = ldo();
    call.key_dim = shape.key_dim;
    call.value_dim = shape.value_dim;
    call.key_type = call.value_type = shape.type;
    call.key_parts = keys.stored.as<const void>();
    call.value_parts = values.stored.as<const void>();
    call.end = latents.length;
    attend_latent_prompt(call, scratch, nullptr);
    synchronize(nullptr);
    return to_host<float>(out);
  }
};

// Queries, weights, and keys and values of heads are rounded to fp16. With normal keys a logit is
// off by about 2^-12 for each of the first two, a weight as much and 2^-12 more relative to itself;
// values stay below 5.
inline void expect_prompt_attended(const PromptProblem& p) {
  const std::vector<double> expected = p.expected();
  const std::vector<float> out = p.run();
  double worst = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_FALSE(std::isnan(out[i])) << "value " << i;
    worst = std::max(worst, std::abs(double{out[i]} - expected[i]));
  }
  EXPECT_LT(worst, 3e-3) << "rank " << p.shape.rank << " heads " << p.shape.heads << " of "
                         << p.shape.key_dim << " and " << p.shape.value_dim << ", positions "
                         << p.latents.length << ", rows " << p.m << ", window " << p.shape.window
                         << ", chunk " << p.shape.chunk;
}

}  // namespace walsh::cuda
