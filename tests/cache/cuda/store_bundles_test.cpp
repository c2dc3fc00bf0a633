#include "cache/cuda/coded_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "base/half.h"
#include "cache/cuda/device_cache.h"
#include "cache/stored_rows.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

using test::CacheShape;
using test::DeviceCache;
using test::gpu_cache_types;
using test::TileReader;
using test::to_device;
using walsh::test::StoredRows;

constexpr uint16_t kHalfBlank = DeviceCache::kBlank * 0x101;
constexpr uint16_t kHalfInfinity = 0x7c00;

// Holds fp16 rows [sequence][kv_head][position][head_dim], among them all kinds that are not
// normal.
struct Text {
  int kv_heads, positions, dim;
  std::vector<uint16_t> rows;

  Text(const CacheShape& shape, int length, uint64_t seed)
      : kv_heads(shape.kv_heads), positions(length), dim(shape.head_dim) {
    Random random(seed);
    rows.resize(static_cast<size_t>(shape.heads() * positions * dim));
    std::vector<float> means(static_cast<size_t>(dim));
    for (float& mean : means)
      mean = static_cast<float>(2 * random.normal());
    for (size_t at = 0; at < rows.size(); at += static_cast<size_t>(dim))
      fill(random, means, rows.data() + at);
  }

  const uint16_t* row(int sequence, int head, int position) const {
    return rows.data() + ((int64_t{sequence} * kv_heads + head) * positions + position) * dim;
  }

 private:
  void fill(Random& random, const std::vector<float>& means, uint16_t* row) const {
    const auto kind = random.below(24);
    for (int c = 0; c < dim; ++c) {
      const double v = random.normal();
      double x = means[static_cast<size_t>(c)] + v;
      if (kind == 0) x = 0;
      if (kind == 1) x = 3e-7 * v;  // denormal
      if (kind == 2) x = v > 0 ? 60000 : -60000;
      if (kind == 3) x = c % 32 < 8 ? 1e-4 * v : 200 * v;
      if (kind == 4) x = std::round(2 * v) / 2;  // ties
      if (kind == 5) x = c / 32 % 2 == 0 ? 0 : v;
      if (kind == 6) x = means[static_cast<size_t>(c)];
      row[c] = f32_to_f16(static_cast<float>(x));
    }
    const uint64_t column = random.below(static_cast<uint64_t>(dim));
    if (kind == 7) row[column] = kHalfNan;
    if (kind == 8) row[column] = kHalfInfinity | 0x8000;
    if (kind == 9) row[column] = 0x8000;
  }
};

std::vector<float> mean_key(const Text& text, int sequence, int head) {
  std::vector<float> mean;
  for (int c = 0; c < text.dim; ++c) {
    float sum = 0;
    for (int j = 4; j < 32; ++j)
      sum += f16_to_f32(text.row(sequence, head, j)[c]);
    mean.push_back(std::isfinite(sum) ? sum / 28 : 0);
  }
  return mean;
}

// Holds a cache, the texts of its sequences, and which bundles of them are to be stored.
struct Problem {
  static constexpr int kPositions = 256;
  CacheShape shape;
  std::vector<int32_t> kept;
  Text keys, values;
  std::vector<float> offsets;  // before the launch
  DeviceCache cache;
  std::vector<std::vector<bool>> stored;  // [sequence][bundle]

  Problem(const CacheShape& s, const std::vector<int32_t>& kept_positions, uint64_t seed)
      : shape(s),
        kept(kept_positions),
        keys(s, kPositions, seed),
        values(s, kPositions, seed + 1),
        offsets(walsh::test::normal_rows(s.heads(), s.head_dim, seed + 2)),
        cache(s, kept, offsets, seed + 3),
        stored(static_cast<size_t>(s.sequences), std::vector<bool>(kPositions / kCacheBundle)) {}

  const Text& text(bool key) const { return key ? keys : values; }

  // Fills the rings as they are when sequences have come to these positions.
  void fill_rings(const std::vector<int32_t>& positions) {
    std::vector<uint16_t> rings[2];
    for (const bool key : {false, true}) {
      rings[key].assign(static_cast<size_t>(shape.heads() * shape.ring * shape.head_dim), kHalfNan);
      for (int s = 0; s < shape.sequences; ++s) {
        const int last = positions[static_cast<size_t>(s)];
        for (int h = 0; h < shape.kv_heads; ++h) {
          for (int p = std::max(0, last - shape.ring + 1); p <= last; ++p) {
            const int64_t to = (int64_t{s} * shape.kv_heads + h) * shape.ring + p % shape.ring;
            std::copy_n(text(key).row(s, h, p), shape.head_dim,
                        rings[key].data() + to * shape.head_dim);
          }
        }
      }
    }
    cache.set_rings(rings[1], rings[0]);
  }

  // Returns the positions from `first` on of a sequence.
  std::vector<uint16_t> fresh(bool key, int sequence, int first, int capacity) const {
    std::vector<uint16_t> out(static_cast<size_t>(shape.kv_heads * capacity * shape.head_dim),
                              kHalfNan);
    for (int h = 0; h < shape.kv_heads; ++h) {
      std::copy_n(text(key).row(sequence, h, first),
                  std::min(capacity, kPositions - first) * shape.head_dim,
                  out.data() + int64_t{h} * capacity * shape.head_dim);
    }
    return out;
  }

  std::string name() const {
    return std::string(shape.keys->name) + " and " + std::string(shape.values->name) + " of " +
           std::to_string(shape.head_dim);
  }

  // Returns whether the launch stored bundle 0 of a sequence.
  bool started(int sequence) const { return stored[static_cast<size_t>(sequence)][0]; }

  std::vector<float> offset_of(int sequence, int head) const {
    if (started(sequence)) return mean_key(keys, sequence, head);
    const auto at = offsets.begin() + (int64_t{sequence} * shape.kv_heads + head) * shape.head_dim;
    return {at, at + shape.head_dim};
  }

  // Checks that everything in the cache is what it should be, blank where nothing is stored.
  void check() {
    cache.read();
    for (const bool key : {true, false}) {
      std::vector<uint8_t> left = cache.tiles(key);
      for (int s = 0; s < shape.sequences; ++s) {
        for (int h = 0; h < shape.kv_heads; ++h) {
          for (int bundle = 0; bundle < kPositions / kCacheBundle; ++bundle)
            if (stored[static_cast<size_t>(s)][static_cast<size_t>(bundle)])
              check_bundle(key, s, h, bundle, left);
          check_sinks(key, s, h);
          if (key && shape.keys->coded) check_offset(s, h);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
      for (const uint8_t byte : left)
        ASSERT_EQ(byte, DeviceCache::kBlank) << name() << ": stored where nothing is due";
    }
  }

 private:
  std::vector<float> expected_rows(bool key, int sequence, int head, int bundle) const {
    std::vector<float> x;
    const bool shifted = key && shape.keys->coded;
    const std::vector<float> offset = offset_of(sequence, head);
    for (int j = 0; j < kCacheBundle; ++j) {
      for (int c = 0; c < shape.head_dim; ++c) {
        const float v = f16_to_f32(text(key).row(sequence, head, bundle * kCacheBundle + j)[c]);
        x.push_back(shifted ? v - offset[static_cast<size_t>(c)] : v);
      }
    }
    return x;
  }

  // Tiles that are right become blank in `left`.
  void check_bundle(bool key, int sequence, int head, int bundle,
                    std::vector<uint8_t>& left) const {
    const CacheType& type = shape.type(key);
    const int dim = shape.head_dim;
    const auto groups = static_cast<int>(cache_groups(type, dim));
    const StoredRows expected(type, expected_rows(key, sequence, head, bundle), dim);
    const std::string where = name() + (key ? " keys" : " values") + " bundle " +
                              std::to_string(bundle) + " of sequence " + std::to_string(sequence) +
                              " head " + std::to_string(head);
    for (int j = 0; j < kCacheBundle; ++j) {
      const int position = bundle * kCacheBundle + j, row = j % kCacheTile;
      const size_t at = cache.tile_at(key, sequence, head, position);
      const TileReader tile(type, key, dim, cache.tiles(key).data() + at);
      for (int c = 0; c < dim; ++c) {
        if (type.coded) {
          ASSERT_EQ(tile.code(row, c), expected.code(j, c)) << where << " row " << j << ' ' << c;
        } else {
          ASSERT_EQ(tile.value(row, c), text(key).row(sequence, head, position)[c]) << where;
        }
      }
      for (int g = 0; g < groups; ++g) {
        ASSERT_EQ(tile.scale(row, g), expected.scales()[static_cast<size_t>(j * groups + g)])
            << where << " row " << j << " group " << g;
      }
      std::fill_n(left.begin() + static_cast<std::ptrdiff_t>(at), test::tile_size(type, dim),
                  DeviceCache::kBlank);
    }
  }

  void check_sinks(bool key, int sequence, int head) const {
    const int64_t at =
        (int64_t{sequence} * shape.kv_heads + head) * kLeadingPositions * shape.head_dim;
    for (int i = 0; i < kLeadingPositions * shape.head_dim; ++i) {
      const uint16_t expected =
          started(sequence) ? text(key).row(sequence, head, 0)[i] : kHalfBlank;
      ASSERT_EQ(cache.leading(key)[static_cast<size_t>(at + i)], expected) << name() << " leading";
    }
  }

  void check_offset(int sequence, int head) const {
    const int64_t at = (int64_t{sequence} * shape.kv_heads + head) * shape.head_dim;
    const std::vector<float> expected = offset_of(sequence, head);
    for (int c = 0; c < shape.head_dim; ++c) {
      ASSERT_EQ(cache.key_offsets()[static_cast<size_t>(at + c)], expected[static_cast<size_t>(c)])
          << name() << " offset of column " << c;
    }
  }
};

class GpuStoreUnits : public testing::Test {
 protected:
  void SetUp() override {
    if (devices().empty()) GTEST_SKIP() << "no CUDA device: " << unavailable_reason();
  }

  // Calls f(types of keys and values, head_dim, seed).
  template <typename F>
  void for_each_type(F f) {
    const auto types = gpu_cache_types();
    for (size_t i = 0; i < types.size(); ++i)
      for (const int dim : {64, 128, 256})
        for (const uint64_t seed : {1, 2, 3}) {
          f(types[i], types[(i + seed) % types.size()], dim, 100 * seed + i);
          if (HasFatalFailure()) return;
        }
  }
};

// A step is a row of decoding and the bundle that it stores, if any.
struct Step {
  int position, kept;
  std::optional<int> due;
};

void expect_steps(const CacheShape& like, const std::vector<Step>& steps, uint64_t seed) {
  CacheShape shape = like;
  shape.sequences = static_cast<int>(steps.size()) + 1;
  std::vector<int32_t> kept, last;
  for (const Step& step : steps) {
    kept.push_back(step.kept);
    last.push_back(step.position);
  }
  kept.push_back(0), last.push_back(0);  // a sequence that is not in the launch
  Problem p(shape, kept, seed);
  p.fill_rings(last);
  std::vector<int32_t> positions, sequences;
  for (size_t i = steps.size(); i-- > 0;) {
    positions.push_back(steps[i].position);
    sequences.push_back(static_cast<int32_t>(i));
    if (steps[i].due) p.stored[i][static_cast<size_t>(*steps[i].due)] = true;
  }
  const Buffer at = to_device(positions), of = to_device(sequences);
  store_bundles(p.cache.view, {at.as<const int32_t>(), of.as<const int32_t>()},
                static_cast<int64_t>(steps.size()), nullptr);
  synchronize(nullptr);
  p.check();
}

TEST_F(GpuStoreUnits, StoresWhatARowOfDecodingBringsBehindTheWindow) {
  for_each_type([](const CacheType* keys, const CacheType* values, int dim, uint64_t seed) {
    expect_steps({keys, values, 2, dim, 0, 4, 101, 10},
                 {{42, 0, 0},   // 42 - 10 is the first multiple of 32 behind the leading positions
                  {202, 0, 5},  // a ring that has gone round
                  {106, 64, 2}},  // after a text was taken back
                 seed);
  });
}

TEST_F(GpuStoreUnits, StoresNothingAtOtherPositions) {
  const CacheType& type = get_cache_type("kt3");
  expect_steps({&type, &type, 2, 64, 0, 4, 128, 10},
               {{0, 0, {}}, {41, 0, {}}, {43, 0, {}}, {105, 0, {}}, {106, 128, {}}, {74, 64, {}}},
               7);
  expect_steps({&type, &type, 2, 64, 0, 4, 64, 0},
               {{0, 0, {}}, {31, 0, {}}, {32, 0, 0}, {33, 0, {}}, {64, 0, 1}, {64, 64, {}}}, 8);
}

void expect_prompt(const CacheShape& shape, int fresh_first, int first, int last, uint64_t seed) {
  constexpr int kSequence = 1;
  const int capacity = last * kCacheBundle - fresh_first + 5;
  Problem p(shape, std::vector<int32_t>(static_cast<size_t>(shape.sequences)), seed);
  const Buffer keys = to_device(p.fresh(true, kSequence, fresh_first, capacity));
  const Buffer values = to_device(p.fresh(false, kSequence, fresh_first, capacity));
  for (int bundle = first; bundle < last; ++bundle)
    p.stored[kSequence][static_cast<size_t>(bundle)] = true;
  store_bundles(p.cache.view, {kSequence, first, last},
                {keys.as<uint16_t>(), values.as<uint16_t>(), capacity, fresh_first}, nullptr);
  synchronize(nullptr);
  p.check();
}

TEST_F(GpuStoreUnits, StoresTheUnitsOfAPrompt) {
  for_each_type([](const CacheType* keys, const CacheType* values, int dim, uint64_t seed) {
    expect_prompt({keys, values, 3, dim, 3, 4, 0, 32}, 0, 0, 4, seed);
  });
}

TEST_F(GpuStoreUnits, StoresFurtherUnitsWithTheOffsetThatIsThere) {
  for_each_type([](const CacheType* keys, const CacheType* values, int dim, uint64_t seed) {
    expect_prompt({keys, values, 1, dim, 2, 4, 0, 32}, 64, 3, 7, seed);
  });
  const CacheType& type = get_cache_type("tq3_0");
  expect_prompt({&type, &type, 2, 128, 2, 4, 0, 32}, 32, 2, 2, 1);  // none
}

TEST(GpuStoreUnitsCode, IsThatOfTheType) {
  for (const CacheType* type : gpu_cache_types()) {
    const GroupCode code = group_code(*type);
    EXPECT_EQ(code.absmax, type->name == "q8_0" || type->name == "q4_0") << type->name;
    EXPECT_EQ(code.mirrored, type->name == "kt4") << type->name;
    if (!type->coded || code.absmax) continue;
    EXPECT_EQ(code.thresholds, (1 << type->code.bits) / 2 - 1) << type->name;
  }
  EXPECT_THROW(group_code(get_cache_type("tq3_0:seed")), Error);
}

}  // namespace
}  // namespace walsh::cuda
