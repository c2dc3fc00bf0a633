#include <gtest/gtest.h>

#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "cache/cuda/coded_cache.h"
#include "cuda_buffers.h"
#include "kernels/ops.h"
#include "rotate/rotation.h"

namespace walsh::cuda {
namespace {

using test::to_device;
using test::to_host;

constexpr uint16_t kEmpty = 0x1234;
constexpr int64_t kPositions = 400, kSequences = 2;

std::vector<float> normal_values(int64_t count, Random& random) {
  std::vector<float> out(static_cast<size_t>(count));
  for (float& v : out)
    v = static_cast<float>(random.normal());
  return out;
}

// Holds the rotation of a side, or none.
struct Turn {
  const CacheType& type;
  int dim;

  void operator()(float* head) const {
    if (type.rotation_block == 0) return;
    const Rotation rotation{RotationKind::hadamard, type.rotation_block, kCacheRotationSeed, true};
    Rotator(rotation, dim).apply(head);
  }
};

class GpuKeepRows : public testing::Test {
 protected:
  void SetUp() override {
    if (devices().empty()) GTEST_SKIP() << "no CUDA device: " << unavailable_reason();
  }
};

// Checks rows of two sequences that go to the rings, or of one that go to fresh rows. They have no
// positions if `rotated` is 0.
void expect_rows(const CacheTypes& types, int dim, int rotated, int heads, int kv_heads, int64_t m,
                 bool norms, bool fresh) {
  SCOPED_TRACE(testing::Message() << types.keys->name << " " << types.values->name << " head_dim "
                                  << dim << " rotated " << rotated << (norms ? " norms" : "")
                                  << (fresh ? " fresh" : ""));
  Random random(static_cast<uint64_t>(dim * 100 + heads));
  const int pairs = rotated / 2;
  const int64_t ldq = heads * dim + 4, ldk = kv_heads * dim + 1, ldv = kv_heads * dim + 2;
  auto q = normal_values(m * ldq, random), k = normal_values(m * ldk, random);
  auto v = normal_values(m * ldv, random);
  const auto cos = normal_values(kPositions * pairs, random);
  const auto sin = normal_values(kPositions * pairs, random);
  const auto q_norm = normal_values(dim, random), k_norm = normal_values(dim, random);

  const CodedLayer cache(types, kv_heads, dim, 1, kSequences);
  CodedView view = cache.view({}, nullptr);
  std::vector<int32_t> positions, sequences;
  for (int64_t t = 0; t < m; ++t) {
    positions.push_back(static_cast<int32_t>(fresh ? 70 + t : 200 + (t * 37 + 11) % view.ring));
    sequences.push_back(static_cast<int32_t>(fresh ? 1 : t % kSequences));
  }
  const int64_t rows = fresh ? 128 : view.ring * kSequences;
  const std::vector<uint16_t> empty(static_cast<size_t>(rows * kv_heads * dim), kEmpty);
  const Buffer keys = to_device(empty), values = to_device(empty);
  view.keys.ring = keys.as<uint16_t>();
  view.values.ring = values.as<uint16_t>();
  const FreshRows to{keys.as<uint16_t>(), values.as<uint16_t>(), rows, 64};
  const Buffer at = to_device(positions), of = to_device(sequences);
  const Buffer dq = to_device(q), dk = to_device(k), dv = to_device(v);
  const Buffer dcos = to_device(cos), dsin = to_device(sin);
  const Buffer dq_norm = to_device(q_norm), dk_norm = to_device(k_norm);
  RopeCall call;
  call.q = dq.as<float>();
  call.ldq = ldq;
  call.k = dk.as<float>();
  call.ldk = ldk;
  call.v = dv.as<float>();
  call.ldv = ldv;
  call.m = m;
  call.heads = heads;
  call.q_norm = norms ? dq_norm.as<float>() : nullptr;
  call.k_norm = norms ? dk_norm.as<float>() : nullptr;
  call.eps = 1e-6f;
  call.cos = rotated > 0 ? dcos.as<float>() : nullptr;
  call.sin = rotated > 0 ? dsin.as<float>() : nullptr;
  call.rotated = rotated;
  keep_rows(call, view, {at.as<const int32_t>(), of.as<const int32_t>()}, fresh ? &to : nullptr,
            nullptr);
  synchronize(nullptr);

  const Ops& cpu = ops(Isa::ref);
  const Turn turn_key{*types.keys, dim}, turn_value{*types.values, dim};
  auto expected_keys = empty, expected_values = empty;
  for (int64_t t = 0; t < m; ++t) {
    const int64_t position = positions[static_cast<size_t>(t)];
    const auto place = [&](float* x, int count, const std::vector<float>& gain) {
      for (int h = 0; norms && h < count; ++h)
        cpu.rms_norm(x + h * dim, gain.data(), dim, 1e-6f, x + h * dim);
      cpu.rope(x, count, dim, rotated, cos.data() + position * pairs,
               sin.data() + position * pairs);
      for (int h = 0; h < count; ++h)
        turn_key(x + h * dim);
    };
    place(q.data() + t * ldq, heads, q_norm);
    place(k.data() + t * ldk, kv_heads, k_norm);
    for (int h = 0; h < kv_heads; ++h) {
      float* value = v.data() + t * ldv + h * dim;
      turn_value(value);
      const int64_t head = sequences[static_cast<size_t>(t)] * kv_heads + h;
      const int64_t row =
          fresh ? h * rows + position - 64 : head * view.ring + position % view.ring;
      cpu.to_f16(k.data() + t * ldk + h * dim, dim, expected_keys.data() + row * dim);
      cpu.to_f16(value, dim, expected_values.data() + row * dim);
    }
  }
  EXPECT_EQ(to_host<float>(dq), q);
  EXPECT_EQ(to_host<uint16_t>(keys), expected_keys);
  EXPECT_EQ(to_host<uint16_t>(values), expected_values);
}

TEST_F(GpuKeepRows, GiveTheBitsOfTheCpu) {
  const CacheType &tq3 = get_cache_type("tq3_0"), &kt4 = get_cache_type("kt4");
  const CacheType &q8 = get_cache_type("q8_0"), &half = get_cache_type("f16");
  for (const int dim : {64, 128, 256}) {
    for (const bool norms : {false, true}) {
      for (const int rotated : {dim, dim / 4 * 3, dim / 2, 10, 0}) {
        expect_rows({&tq3, &kt4, 32}, dim, rotated, 4, 2, 1, norms, false);
        expect_rows({&kt4, &tq3, 0}, dim, rotated, 7, 1, 6, norms, false);
        expect_rows({&q8, &kt4, 100}, dim, rotated, 3, 3, 50, norms, false);
        expect_rows({&half, &tq3, 32}, dim, rotated, 4, 2, 40, norms, true);
      }
    }
  }
}

// The ring has the window, a bundle, and the row that is added.
TEST_F(GpuKeepRows, RingsHoldWhatAQuerySees) {
  const CacheType& type = get_cache_type("kt2");
  for (const int64_t window : {0, 31, 32, 33, 1000}) {
    const CodedView view = CodedLayer({&type, &type, window}, 1, 64, 1, 1).view({}, nullptr);
    EXPECT_GE(view.ring, window + kCacheBundle + 1);
    EXPECT_EQ(view.ring % kCacheTile, 0);
  }
}

}  // namespace
}  // namespace walsh::cuda
