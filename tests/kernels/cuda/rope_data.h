// Tests norms, rope and the append to the cache against the CPU, on GPUs and on the host.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "cuda_buffers.h"
#include "kernels/cuda/rows/query_source.h"
#include "kernels/ops.h"

namespace walsh::cuda {

using test::to_device;
using test::to_host;

inline std::vector<float> normal_values(int64_t count, Random& random) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values)
    v = static_cast<float>(random.normal());
  return values;
}

// Returns rows of queries, each head followed by as many other values, with one value after each
// row.
inline std::vector<float> beside_gates(const std::vector<float>& q, int64_t m, int heads, int dim,
                                       int64_t ldq) {
  std::vector<float> both;
  for (int64_t t = 0; t < m; ++t) {
    for (int h = 0; h < heads; ++h) {
      const float* head = q.data() + t * ldq + h * dim;
      both.insert(both.end(), head, head + dim);
      both.insert(both.end(), static_cast<size_t>(dim), 1e9f);
    }
    both.push_back(1e9f);
  }
  return both;
}

// Checks queries, keys and values of m rows of two sequences, whose pages are scattered. They have
// no positions if `rotated` is 0; with norms queries have factors as well; if `gated`, they are
// read from between their gates. Values may have a norm too, or be the keys as they were before
// theirs, or there are only queries. If norms are `turned`, those of queries and keys come behind
// the rotation.
enum class HeadValues { plain, normed, normed_keys, none };
inline void expect_rope(int dim, int rotated, int heads, int kv_heads, int64_t m, bool norms,
                        bool gated = false, HeadValues kind = HeadValues::plain,
                        bool turned = false) {
  SCOPED_TRACE(testing::Message() << "head_dim " << dim << " rotated " << rotated << " heads "
                                  << heads << "/" << kv_heads << (norms ? " norms" : ""));
  Random random(static_cast<uint64_t>(dim * 100 + heads));
  constexpr int64_t kPerSequence = 4, kPositions = kPerSequence * kPageTokens;
  const int pairs = rotated / 2;
  const std::vector<int32_t> table{5, 2, 7, 1, 3, 0, 6, 4};
  std::vector<int32_t> positions, sequences;
  for (int64_t t = 0; t < m; ++t) {
    positions.push_back(static_cast<int32_t>((t * 37 + 11) % kPositions));
    sequences.push_back(static_cast<int32_t>(t % 2));
  }
  const int64_t ldq = heads * dim + 3, ldk = kv_heads * dim + 1, ldv = kv_heads * dim + 2;
  auto q = normal_values(m * ldq, random), k = normal_values(m * ldk, random);
  auto v = normal_values(m * ldv, random);
  k[1] = 1e30f;  // beyond fp16, where no norm brings it back
  v[0] = 7e4f;
  v[1] = -1e30f;
  v[2] = std::numeric_limits<float>::quiet_NaN();
  const auto cos = normal_values(kPositions * pairs, random);
  const auto sin = normal_values(kPositions * pairs, random);
  const auto q_norm = normal_values(dim, random), k_norm = normal_values(dim, random);
  const auto factors = normal_values(kPositions, random), v_norm = normal_values(dim, random);

  KvPool pool(kv_heads, dim, static_cast<int64_t>(table.size()));
  const std::vector<uint16_t> empty(pool.keys.bytes() / 2, 0xffff);
  pool.keys = to_device(empty);
  pool.values = to_device(empty);
  const Buffer pages = to_device(table), at = to_device(positions), of = to_device(sequences);
  const Buffer dq = to_device(q), dk = to_device(k), dv = to_device(v);
  const Buffer dcos = to_device(cos), dsin = to_device(sin);
  const Buffer dq_norm = to_device(q_norm), dk_norm = to_device(k_norm);
  const Buffer dfactors = to_device(factors), dv_norm = to_device(v_norm);
  RopeCall call;
  call.q = dq.as<float>();
  call.ldq = ldq;
  call.k = dk.as<float>();
  call.ldk = ldk;
  call.v = dv.as<float>();
  call.ldv = ldv;
  const bool is_key = kind == HeadValues::normed_keys;
  if (is_key) {
    call.v = call.k;
    call.ldv = call.ldk;
  }
  if (kind == HeadValues::none) call.k = call.v = nullptr;
  if (kind == HeadValues::normed || is_key) {
    call.v_norm = dv_norm.as<float>();
    call.v_eps = 1e-5f;
  }
  call.m = m;
  call.heads = heads;
  call.q_norm = norms ? dq_norm.as<float>() : nullptr;
  call.k_norm = norms ? dk_norm.as<float>() : nullptr;
  call.q_scale = norms ? dfactors.as<float>() : nullptr;
  call.eps = 1e-6f;
  call.norms_turned = turned;
  call.cos = rotated > 0 ? dcos.as<float>() : nullptr;
  call.sin = rotated > 0 ? dsin.as<float>() : nullptr;
  call.rotated = rotated == dim && m == 1 ? 0 : rotated;  // both say: the whole head
  const PageTable page_table{pages.as<const int32_t>(), kPerSequence};
  const RowPlaces places{at.as<const int32_t>(), of.as<const int32_t>()};
  if (gated) {
    const Buffer both = to_device(beside_gates(q, m, heads, dim, ldq));
    copy_to_device(dq.as(), std::vector<float>(q.size(), 7.0f).data(), dq.bytes(), nullptr);
    rope_and_store(call, {both.as<float>(), 2 * heads * dim + 1, 2 * dim}, pool, page_table, places,
                   nullptr);
    synchronize(nullptr);
    for (int64_t t = 0; t < m; ++t)  // what lies between rows is not read
      std::fill(q.begin() + t * ldq + heads * dim, q.begin() + (t + 1) * ldq, 7.0f);
  } else {
    rope_and_store(call, pool, page_table, places, nullptr);
  }
  synchronize(nullptr);

  const Ops& cpu = ops(Isa::ref);
  auto expected_keys = empty, expected_values = empty;
  for (int64_t t = 0; t < m; ++t) {
    const int64_t position = positions[static_cast<size_t>(t)];
    const auto norm = [&](float* x, int count, const std::vector<float>& gain) {
      for (int h = 0; norms && h < count; ++h)
        cpu.rms_norm(x + h * dim, gain.data(), dim, 1e-6f, x + h * dim);
    };
    const auto turn = [&](float* x, int count, const std::vector<float>& gain) {
      if (!turned) norm(x, count, gain);
      cpu.rope(x, count, dim, rotated, cos.data() + position * pairs,
               sin.data() + position * pairs);
      if (turned) norm(x, count, gain);
    };
    turn(q.data() + t * ldq, heads, q_norm);
    for (int i = 0; norms && i < heads * dim; ++i)
      q[static_cast<size_t>(t * ldq + i)] *= factors[static_cast<size_t>(position)];
    if (kind == HeadValues::none) continue;
    if (is_key) std::copy_n(k.data() + t * ldk, kv_heads * dim, v.data() + t * ldv);
    for (int h = 0; call.v_norm != nullptr && h < kv_heads; ++h) {
      float* const x = v.data() + t * ldv + h * dim;
      cpu.rms_norm(x, v_norm.data(), dim, call.v_eps, x);
    }
    turn(k.data() + t * ldk, kv_heads, k_norm);
    const int64_t page = table[static_cast<size_t>(
        sequences[static_cast<size_t>(t)] * kPerSequence + position / kPageTokens)];
    for (int h = 0; h < kv_heads; ++h) {
      const int64_t to =
          ((page * kv_heads + h) * kPageTokens + position % kPageTokens) * int64_t{dim};
      cpu.to_f16(k.data() + t * ldk + h * dim, dim, expected_keys.data() + to);
      cpu.to_f16(v.data() + t * ldv + h * dim, dim, expected_values.data() + to);
    }
  }
  for (auto* halves : {&expected_keys, &expected_values})
    std::transform(halves->begin(), halves->end(), halves->begin(), [&](uint16_t h) {
      return halves == &expected_values && h == kHalfNan ? uint16_t{0} : without_infinity(h);
    });
  EXPECT_EQ(to_host<float>(dq), q);
  EXPECT_EQ(to_host<uint16_t>(pool.keys), expected_keys);
  EXPECT_EQ(to_host<uint16_t>(pool.values), expected_values);
}

}  // namespace walsh::cuda
