// Tests latent attention: what its cache takes, and the matrices that are multiplied head by head.
#include <gtest/gtest.h>

#include <vector>

#include "base/half.h"
#include "model/by_head.h"
#include "model/cpu/kv_cache.h"
#include "model/positions.h"
#include "model/synthetic.h"
#include "threads.h"

namespace walsh {
namespace {

CacheTypes types_of(const char* name) {
  return {&get_cache_type(name), &get_cache_type(name), 32};
}

TEST(LatentCache, TakesALatentAndASharedKeyPerPosition) {
  AttentionDesc v3;  // DeepSeek-V3
  v3.heads = v3.kv_heads = 128;
  v3.head_dim = 192;
  v3.latent.rank = 512;
  v3.latent.rope_dim = 64;
  v3.latent.value_dim = 128;
  EXPECT_EQ(v3.cached_keys(), 576);
  EXPECT_EQ(v3.cached_values(), 0);
  EXPECT_EQ(position_bytes(v3, types_of("f16")), 2 * 576);
  EXPECT_EQ(position_bytes(v3, types_of("tq3_0")), 512 / 32 * 14 + 2 * 64);
  EXPECT_EQ(position_bytes(v3, types_of("q8_0")), 512 / 32 * 34 + 2 * 64);
  v3.latent = {};
  EXPECT_EQ(position_bytes(v3, types_of("f16")), 2 * 2 * 128 * 192);
}

TEST(LatentCache, IsAsLargeAsPlanned) {
  ThreadPool pool(test::kThreads);
  const Format& f16 = get_format("f16");
  SyntheticSource source("tiny-latent", {&f16, &f16, &f16});
  LoadOptions options;
  options.pool = &pool;
  const Model model = Model::load(source, parse_config(source.config_json(), "test"), options);
  SessionOptions session;
  session.max_positions = 500;
  const KvPages pages(kv_shape(model, session));
  const auto cache = make_kv_cache(model, pages, 16, uint64_t{1} << 30);
  double bytes = 0;  // of a position
  for (const LayerDesc& layer : model.config.layers)
    bytes += position_bytes(layer.attention, model.cache);
  EXPECT_EQ(bytes, 2 * 2 * (128 + 32));
  const KvShape& shape = pages.shape();
  EXPECT_EQ(static_cast<double>(cache->bytes()),
            bytes * static_cast<double>(shape.pages * shape.page_positions));
}

// A coded matrix becomes what its codes say, as fp16; a plain one keeps its type.
TEST(MatricesByHead, AreDecodedAsTheyAreStored) {
  ThreadPool pool(test::kThreads);
  for (const char* name : {"tq3", "bf16", "f32"}) {
    const Format& format = get_format(name);
    SyntheticSource source("tiny-latent", {&format, &format, &format});
    const ModelConfig config = parse_config(source.config_json(), "test");
    const LayerDesc& layer = config.layers[0];
    const MatrixDesc& m = layer.matrix(layer.attention.k);
    const int64_t heads = layer.attention.heads, rows = m.rows / heads;
    const Tensor stored = source.load(m.weight);
    std::vector<float> expected(static_cast<size_t>(m.rows * m.cols));
    decode_rows(stored, 0, m.rows, expected.data());
    for (const bool transposed : {false, true}) {
      const Tensor plain = decode_heads(stored, nullptr, heads, transposed, pool);
      EXPECT_EQ(plain.format->name, format.dense ? name : "f16");
      EXPECT_EQ(plain.rows, transposed ? heads * m.cols : m.rows);
      std::vector<float> values(expected.size());
      decode_rows(plain, 0, plain.rows, values.data());
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < m.cols; ++c) {
            const int64_t at =
                transposed ? (h * m.cols + c) * rows + r : (h * rows + r) * m.cols + c;
            const float wanted = expected[static_cast<size_t>((h * rows + r) * m.cols + c)];
            ASSERT_EQ(values[static_cast<size_t>(at)],
                      format.dense ? wanted : f16_to_f32(f32_to_f16(wanted)));
          }
        }
      }
    }
  }
}

// Outputs of a two-sided rotation are rotated back.
TEST(MatricesByHead, HaveOutputsOfTheCheckpoint) {
  ThreadPool pool(1);
  const Format& f32 = get_format("f32");
  SyntheticSource source("tiny-latent", {&f32, &f32, &f32});
  const ModelConfig config = parse_config(source.config_json(), "test");
  const LayerDesc& layer = config.layers[0];
  const MatrixDesc& m = layer.matrix(layer.attention.v);
  const Tensor stored = source.load(m.weight);
  const Rotator rotator(Rotation{RotationKind::hadamard, 128, 7, true}, m.rows);
  const Tensor plain = decode_heads(stored, &rotator, layer.attention.heads, false, pool);
  std::vector<float> before(static_cast<size_t>(m.rows * m.cols)), after = before;
  decode_rows(stored, 0, m.rows, before.data());
  decode_rows(plain, 0, m.rows, after.data());
  std::vector<float> column(static_cast<size_t>(m.rows));
  for (int64_t c = 0; c < m.cols; c += 17) {
    for (int64_t r = 0; r < m.rows; ++r)
      column[static_cast<size_t>(r)] = after[static_cast<size_t>(r * m.cols + c)];
    rotator.apply(column.data());
    for (int64_t r = 0; r < m.rows; ++r)
      ASSERT_NEAR(column[static_cast<size_t>(r)], before[static_cast<size_t>(r * m.cols + c)],
                  1e-5);
  }
}

}  // namespace
}  // namespace walsh
