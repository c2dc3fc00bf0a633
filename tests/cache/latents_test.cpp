#include "cache/latents.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cache/side.h"
#include "cache/stored_rows.h"

namespace walsh {
namespace {

constexpr int64_t kTurned = 24;

std::vector<uint16_t> halves(int64_t count, uint64_t seed) {
  std::vector<uint16_t> result;
  for (const float v : test::normal_rows(count, 1, seed))
    result.push_back(f32_to_f16(v));
  return result;
}

// Loading gives what the codes of the rows stand for, as fp16, with their shared keys behind.
TEST(CacheLatents, GivesBackWhatWasStored) {
  for (const CacheType& type : all_cache_types()) {
    if (!type.coded) continue;
    for (const int64_t rank : {32, 40, 512}) {
      CacheLatents latents(type, rank, kTurned, kCacheBlock + 1);
      const int64_t cols = latents.cols(), stride = kTurned + 3;
      ASSERT_EQ(cols, padded_head_dim(type, rank));
      for (const int64_t bundle : {9, 2}) {
        std::vector<float> x = test::normal_rows(kCacheBundle, cols, static_cast<uint64_t>(bundle));
        const test::StoredRows expected(type, x, cols);
        const auto keys = halves(kCacheBundle * stride, static_cast<uint64_t>(bundle + 1));
        latents.store(bundle, x.data(), keys.data(), stride);
        if (bundle == 9) latents.copy_block(1, 0);  // bundle 9 is bundle 1 of block 1
        const int64_t first = (bundle == 9 ? 1 : bundle) * kCacheBundle;
        std::vector<uint16_t> rows(static_cast<size_t>(30 * latents.width()));
        latents.load(ops(), first + 2, 30, rows.data());
        for (int64_t j = 0; j < 30; ++j) {
          const uint16_t* row = rows.data() + j * latents.width();
          for (int64_t d = 0; d < cols; ++d)
            ASSERT_EQ(row[d], f32_to_f16(expected.value(j + 2, d))) << type.name << " " << d;
          for (int64_t d = 0; d < kTurned; ++d)
            ASSERT_EQ(row[cols + d], keys[static_cast<size_t>((j + 2) * stride + d)]);
        }
      }
    }
  }
}

TEST(CacheLatents, TakeTheBytesThatTheTypeHasBitsFor) {
  const CacheType& type = get_cache_type("tq3_0");
  const CacheLatents latents(type, 512, 64, 2 * kCacheBlock);
  EXPECT_EQ(latents.bytes(), 2 * kCacheBlock * (512 / 32 * 14 + 64 * 2));
}

TEST(CacheLatents, AreNaNWhereARowIsNotFinite) {
  const CacheType& type = get_cache_type("kt4");
  CacheLatents latents(type, 32, kTurned, kCacheBlock);
  std::vector<float> x = test::normal_rows(kCacheBundle, 32, 5);
  x[32 * 3 + 7] = std::numeric_limits<float>::infinity();
  const auto keys = halves(kCacheBundle * kTurned, 6);
  latents.store(0, x.data(), keys.data(), kTurned);
  std::vector<uint16_t> rows(static_cast<size_t>(kCacheBundle * latents.width()));
  latents.load(ops(), 0, kCacheBundle, rows.data());
  for (int64_t j = 0; j < kCacheBundle; ++j)
    EXPECT_EQ(std::isnan(f16_to_f32(rows[static_cast<size_t>(j * latents.width())])), j == 3);
}

}  // namespace
}  // namespace walsh
