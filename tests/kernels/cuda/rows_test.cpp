#include "kernels/cuda/rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "kernels/cuda/random_weights.h"
#include "kernels/ops.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

using test::to_device;
using test::to_host;

std::vector<float> normal_values(int64_t count, Random& random) {
  std::vector<float> out(static_cast<size_t>(count));
  for (float& v : out)
    v = static_cast<float>(random.normal());
  return out;
}

class GpuRows : public testing::Test {
 protected:
  void SetUp() override {
    if (devices().empty()) GTEST_SKIP() << "no CUDA device: " << unavailable_reason();
  }
};

// Queries, keys and values of m rows of two sequences, whose pages are scattered.
void expect_rope(int dim, int heads, int kv_heads, int64_t m, bool norms) {
  SCOPED_TRACE(testing::Message() << "head_dim " << dim << " heads " << heads << "/" << kv_heads);
  Random random(static_cast<uint64_t>(dim * 100 + heads));
  constexpr int64_t kPerSequence = 4, kPositions = kPerSequence * kPageTokens;
  const int half = dim / 2;
  const std::vector<int32_t> table{5, 2, 7, 1, 3, 0, 6, 4};
  std::vector<int32_t> positions, sequences;
  for (int64_t t = 0; t < m; ++t) {
    positions.push_back(static_cast<int32_t>((t * 37 + 11) % kPositions));
    sequences.push_back(static_cast<int32_t>(t % 2));
  }
  const int64_t ldq = heads * dim + 3, ldk = kv_heads * dim + 1, ldv = kv_heads * dim + 2;
  auto q = normal_values(m * ldq, random), k = normal_values(m * ldk, random);
  const auto v = normal_values(m * ldv, random), cos = normal_values(kPositions * half, random);
  const auto sin = normal_values(kPositions * half, random);
  const auto q_norm = normal_values(dim, random), k_norm = normal_values(dim, random);

  KvPool pool(kv_heads, dim, static_cast<int64_t>(table.size()));
  const std::vector<uint16_t> empty(pool.keys.bytes() / 2, 0xffff);
  pool.keys = to_device(empty);
  pool.values = to_device(empty);
  const Buffer pages = to_device(table), at = to_device(positions), of = to_device(sequences);
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
  call.cos = dcos.as<float>();
  call.sin = dsin.as<float>();
  rope_and_store(call, pool, {pages.as<const int32_t>(), kPerSequence},
                 {at.as<const int32_t>(), of.as<const int32_t>()}, nullptr);
  synchronize(nullptr);

  const Ops& cpu = ops(Isa::ref);
  auto expected_keys = empty, expected_values = empty;
  for (int64_t t = 0; t < m; ++t) {
    const int64_t position = positions[static_cast<size_t>(t)];
    const auto turn = [&](float* x, int count, const std::vector<float>& gain) {
      for (int h = 0; norms && h < count; ++h)
        cpu.rms_norm(x + h * dim, gain.data(), dim, 1e-6f, x + h * dim);
      cpu.rope(x, count, dim, dim, cos.data() + position * half, sin.data() + position * half);
    };
    turn(q.data() + t * ldq, heads, q_norm);
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
  EXPECT_EQ(to_host<float>(dq), q);
  EXPECT_EQ(to_host<uint16_t>(pool.keys), expected_keys);
  EXPECT_EQ(to_host<uint16_t>(pool.values), expected_values);
}

TEST_F(GpuRows, RopeGivesTheBitsOfTheCpu) {
  for (const int dim : {8, 24, 64, 80, 128, 256}) {
    for (const bool norms : {false, true}) {
      expect_rope(dim, 4, 2, 1, norms);
      expect_rope(dim, 7, 1, 6, norms);
      expect_rope(dim, 3, 3, 100, norms);
    }
  }
}

// Some tokens of a table, the first and the last row among them.
std::vector<float> embed_rows(const StoredTable& table, const std::vector<int32_t>& tokens,
                              int64_t ldx) {
  const auto m = static_cast<int64_t>(tokens.size());
  const std::vector<float> untouched(static_cast<size_t>(m * ldx), -7.0f);
  const Buffer ids = to_device(tokens), x = to_device(untouched);
  embed(table, ids.as<const int32_t>(), m, x.as<float>(), ldx, nullptr);
  synchronize(nullptr);
  return to_host<float>(x);
}

void expect_rows(const Tensor& tensor, const StoredTable& table) {
  const std::vector<int32_t> tokens{0, static_cast<int32_t>(tensor.rows - 1), 3, 3};
  const int64_t ldx = tensor.cols + 5;
  std::vector<float> expected(tokens.size() * static_cast<size_t>(ldx), -7.0f);
  for (size_t t = 0; t < tokens.size(); ++t)
    decode_rows(tensor, tokens[t], tokens[t] + 1, expected.data() + t * static_cast<size_t>(ldx));
  EXPECT_EQ(embed_rows(table, tokens, ldx), expected)
      << tensor.format->name << " with " << tensor.cols << " columns";
}

TEST_F(GpuRows, EmbedDecodesEveryScalarFormatWithTheBitsOfTheCpu) {
  for (const Format& format : all_formats()) {
    if (!test::scalar_code(format)) continue;
    for (const int64_t cols : {32, 96, 896, 1000, 1376, 2080, 4096}) {
      test::RandomWeights random(format, 9, cols, static_cast<uint64_t>(cols));
      for (const int block : {32, 256, 1024, 0}) {
        Tensor& tensor = random.tensor;
        StoredTable table;
        table.format = &format;
        table.rows = tensor.rows;
        table.cols = cols;
        std::vector<Buffer> arrays;
        const auto keep = [&](std::span<const std::byte> bytes) -> const void* {
          if (bytes.empty()) return nullptr;
          arrays.push_back(to_device(std::vector<std::byte>(bytes.begin(), bytes.end())));
          return arrays.back().as<const void>();
        };
        for (int pass = 0; pass < format.passes; ++pass) {
          Rotation& rotation = tensor.rotation[pass];
          rotation.kind = block == 0 ? RotationKind::none : RotationKind::hadamard;
          rotation.block = block == 0 ? 128 : block;
          rotation.signs = pass == 0 || block != 256;
          const PassArrays& stored = tensor.pass[pass];
          table.pass[pass] = {keep(stored.codes), keep(stored.scales), keep(stored.offsets),
                              keep(stored.sub_scales), rotation};
        }
        expect_rows(tensor, table);
      }
    }
  }
}

TEST_F(GpuRows, EmbedConvertsPlainTables) {
  Random random(5);
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    for (const int64_t cols : {1, 37, 1024, 3000}) {
      Tensor tensor;
      tensor.format = &dense_format(type);
      tensor.rows = 6;
      tensor.cols = cols;
      std::vector<std::byte> data;
      for (int64_t i = 0; i < 6 * cols; ++i) {
        const auto v = static_cast<float>(random.normal());
        const uint16_t h = type == DType::f16 ? f32_to_f16(v) : f32_to_bf16(v);
        const auto* bytes = type == DType::f32 ? reinterpret_cast<const std::byte*>(&v)
                                               : reinterpret_cast<const std::byte*>(&h);
        data.insert(data.end(), bytes, bytes + (type == DType::f32 ? 4 : 2));
      }
      tensor.data = data;
      const Buffer stored = to_device(data);
      StoredTable table;
      table.format = tensor.format;
      table.rows = 6;
      table.cols = cols;
      table.data = stored.as<const void>();
      expect_rows(tensor, table);
    }
  }
}

TEST_F(GpuRows, EmbedMarksUnknownTokens) {
  const Buffer stored = to_device(std::vector<float>{1, 2, 3, 4});
  StoredTable table;
  table.format = &dense_format(DType::f32);
  table.rows = table.cols = 2;
  table.data = stored.as<const void>();
  const auto x = embed_rows(table, {-1, 1, 2}, 2);
  EXPECT_TRUE(std::isnan(x[0]) && std::isnan(x[1]) && std::isnan(x[4]) && std::isnan(x[5]));
  EXPECT_EQ(x[2], 3.0f);
  EXPECT_EQ(x[3], 4.0f);
}

TEST_F(GpuRows, EmbedRefusesRotationsOfTheCpu) {
  StoredTable table;
  table.format = &get_format("tq3");
  table.rows = table.cols = 32;
  table.pass[0].rotation.kind = RotationKind::qr;
  EXPECT_THROW(embed(table, nullptr, 1, nullptr, 32, nullptr), Error);
}

}  // namespace
}  // namespace walsh::cuda
