// Tests the operations of attention over a coded cache, and the sums that merge its parts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "kernels/ops.h"

namespace walsh {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

size_t at(int64_t i) {
  return static_cast<size_t>(i);
}

struct Block {
  int64_t n, begin, end;
  std::vector<float> row;  // NaN where nothing may be read
};

// Makes a random row of attention in blocks; edges of vectors are likely.
std::vector<Block> random_blocks(Random& random, double size) {
  std::vector<Block> blocks;
  for (uint64_t b = 0; b <= random.below(4); ++b) {
    const auto n = static_cast<int64_t>(16 * (1 + random.below(16)));
    auto begin = static_cast<int64_t>(random.below(static_cast<uint64_t>(n)));
    if (random.below(2) == 0) begin = begin / 8 * 8;
    auto end = begin + 1 + static_cast<int64_t>(random.below(static_cast<uint64_t>(n - begin)));
    if (random.below(3) == 0) end = n;
    Block block = {n, begin, end, std::vector<float>(at(n), kNan)};
    const double shift = size * random.normal();
    for (int64_t i = begin; i < end; ++i)
      block.row[at(i)] = static_cast<float>(size * random.normal() + shift);
    blocks.push_back(block);
  }
  return blocks;
}

struct Row {
  float largest = -kInfinity, total = 0;
  std::vector<std::vector<float>> weights;  // of each block
  std::vector<float> shrinks;
};

Row weigh_all(Isa isa, const std::vector<Block>& blocks, float scale, float shift) {
  Row result;
  for (const Block& block : blocks) {
    AlignedArray<float> row(at(block.n + 16));
    std::copy(block.row.begin(), block.row.end(), row.begin());
    std::fill(row.begin() + block.n, row.end(), -7.0f);
    result.shrinks.push_back(ops(isa).weigh(row.data(), block.n, block.begin, block.end,
                                            {.scale = scale}, shift, &result.largest,
                                            &result.total));
    result.weights.emplace_back(row.begin(), row.begin() + block.n);
    EXPECT_EQ(row[at(block.n)], -7.0f) << "wrote beyond the end";
  }
  return result;
}

// e^-x may be off by some units, by what rounding x costs, and is 0 where float32 would lose bits.
double tolerance(double expected, double x = 0) {
  return (5e-7 + 6e-8 * x) * expected + 2e-38;
}

TEST(Weigh, IsASoftmaxFromBlockToBlock) {
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    const auto blocks = random_blocks(random, round % 3 == 0 ? 60 : 3);
    const auto scale = static_cast<float>(0.1 + random.uniform());
    const auto shift = static_cast<float>(round % 2 == 0 ? 0 : 20 * random.normal());
    const auto logit = [&](float v) { return double{std::fma(v, scale, shift)}; };
    for (const Isa isa : supported_isas()) {
      const Row row = weigh_all(isa, blocks, scale, shift);
      double before = -1e300, largest = -1e300;
      for (size_t b = 0; b < blocks.size(); ++b) {
        const Block& block = blocks[b];
        for (int64_t i = block.begin; i < block.end; ++i)
          largest = std::max(largest, logit(block.row[at(i)]));
        const double grown = largest - before, shrink = std::exp(-grown);
        ASSERT_NEAR(row.shrinks[b], shrink, tolerance(shrink, grown))
            << isa_name(isa) << " block " << b;
        before = largest;
        for (int64_t i = 0; i < block.n; ++i) {
          const bool seen = i >= block.begin && i < block.end;
          const double weight = seen ? std::exp(logit(block.row[at(i)]) - largest) : 0;
          const double below = seen ? largest - logit(block.row[at(i)]) : 0;
          ASSERT_NEAR(row.weights[b][at(i)], weight, seen ? tolerance(weight, below) : 0)
              << isa_name(isa) << " n " << block.n << " [" << block.begin << ", " << block.end
              << ") at " << i;
        }
      }
      ASSERT_EQ(row.largest, largest) << isa_name(isa);
      double total = 0;
      for (const Block& block : blocks) {
        for (int64_t i = block.begin; i < block.end; ++i)
          total += std::exp(logit(block.row[at(i)]) - largest);
      }
      ASSERT_NEAR(row.total, total, 3e-6 * total) << isa_name(isa);
    }
  }
}

TEST(Weigh, EveryIsaAgreesWithTheSpecification) {
  Random random(2);
  for (int round = 0; round < 300; ++round) {
    const auto blocks = random_blocks(random, round % 3 == 0 ? 40 : 2);
    const Row expected = weigh_all(Isa::ref, blocks, 0.7f, -3.5f);
    for (const Isa isa : supported_isas()) {
      const Row row = weigh_all(isa, blocks, 0.7f, -3.5f);
      ASSERT_EQ(row.largest, expected.largest) << isa_name(isa);
      ASSERT_NEAR(row.total, expected.total, 3e-6 * double{expected.total}) << isa_name(isa);
      for (size_t b = 0; b < blocks.size(); ++b) {
        const double shrink = expected.shrinks[b];
        ASSERT_NEAR(row.shrinks[b], shrink, tolerance(shrink));
        for (size_t i = 0; i < row.weights[b].size(); ++i) {
          const double weight = expected.weights[b][i];
          ASSERT_NEAR(row.weights[b][i], weight, weight == 0 ? 0 : tolerance(weight))
              << isa_name(isa) << " at " << i;
        }
      }
    }
  }
}

TEST(Weigh, ASmallerBlockDoesNotShrinkTheSums) {
  for (const Isa isa : supported_isas()) {
    AlignedArray<float> row(32);
    for (float& v : row)
      v = 2;
    float largest = 5, total = 10;
    EXPECT_EQ(ops(isa).weigh(row.data(), 32, 3, 30, {}, 0, &largest, &total), 1.0f);
    EXPECT_EQ(largest, 5.0f);
    EXPECT_NEAR(total, 10 + 27 * std::exp(-3.0), 3e-5);
    // A value as large as before is not larger.
    for (float& v : row)
      v = 5;
    EXPECT_EQ(ops(isa).weigh(row.data(), 32, 0, 1, {}, 0, &largest, &total), 1.0f);
  }
}

TEST(Weigh, NothingOfAnEmptyPastIsLeft) {
  for (const Isa isa : supported_isas()) {
    AlignedArray<float> row(16);
    float largest = -kInfinity, total = 0;
    EXPECT_EQ(ops(isa).weigh(row.data(), 16, 15, 16, {}, -1e30f, &largest, &total), 0.0f);
    EXPECT_EQ(largest, -1e30f);
    EXPECT_EQ(total, 1.0f);
    EXPECT_EQ(row[15], 1.0f);
    EXPECT_EQ(row[14], 0.0f);
  }
}

TEST(Weigh, NanLogitsStayVisible) {
  for (const Isa isa : supported_isas()) {
    for (const float past : {-kInfinity, 1.0f}) {
      for (int64_t broken = 5; broken < 44; ++broken) {
        AlignedArray<float> row(48);
        for (int64_t i = 0; i < 48; ++i)
          row[at(i)] = static_cast<float>(i % 7);
        row[at(broken)] = kNan;
        float largest = past, total = past == 1.0f ? 2.0f : 0.0f;
        ops(isa).weigh(row.data(), 48, 5, 44, {.scale = 0.5f}, 1, &largest, &total);
        ASSERT_TRUE(std::isnan(row[at(broken)])) << isa_name(isa) << " at " << broken;
        ASSERT_TRUE(std::isnan(total)) << isa_name(isa) << " at " << broken;
        // Without a past, hidden weights may become NaN as well: all of the row is lost then.
        for (int64_t i = 0; i < 48; ++i) {
          if ((i >= 5 && i < 44) || past == -kInfinity) continue;
          ASSERT_EQ(row[at(i)], 0.0f) << isa_name(isa) << " at " << i;
        }
        // Later blocks do not heal it.
        for (float& v : row)
          v = 100;
        ops(isa).weigh(row.data(), 48, 0, 48, {}, 0, &largest, &total);
        ASSERT_TRUE(std::isnan(total)) << isa_name(isa);
      }
      AlignedArray<float> row(16);
      std::fill(row.begin(), row.end(), kNan);
      float largest = past, total = 0;
      ops(isa).weigh(row.data(), 16, 2, 9, {}, 0, &largest, &total);
      EXPECT_TRUE(std::isnan(total)) << isa_name(isa);
      EXPECT_TRUE(std::isnan(row[2]) && std::isnan(row[8])) << isa_name(isa);
    }
  }
}

TEST(ScaleWeights, EveryIsaAgreesWithTheSpecification) {
  Random random(3);
  for (int64_t n = 16; n <= 272; n += 16) {
    AlignedArray<float> weights(at(n)), expected(at(n)), out(at(n + 16));
    AlignedArray<uint16_t> scales(at(n));
    for (int64_t i = 0; i < n; ++i) {
      const double sizes[] = {0, 1, 1e-30, 1e-44};
      weights[at(i)] = static_cast<float>(random.uniform() * sizes[random.below(4)]);
      scales[at(i)] = static_cast<uint16_t>(random.next());  // of any kind
      const float scale = f16_to_f32(scales[at(i)]);
      expected[at(i)] = weights[at(i)] == 0 ? 0 : weights[at(i)] * scale;
    }
    for (const Isa isa : supported_isas()) {
      std::fill(out.begin(), out.end(), -7.0f);
      ops(isa).scale_weights(weights.data(), scales.data(), n, out.data());
      for (int64_t i = 0; i < n; ++i) {
        if (std::isnan(expected[at(i)])) {
          ASSERT_TRUE(std::isnan(out[at(i)])) << isa_name(isa) << " at " << i;
        } else {
          ASSERT_EQ(out[at(i)], expected[at(i)]) << isa_name(isa) << " at " << i;
        }
      }
      ASSERT_EQ(out[at(n)], -7.0f) << "wrote beyond the end";
    }
  }
}

TEST(ScaleWeights, ZeroWinsOverNanAndNanWeightsStay) {
  AlignedArray<float> weights(16), out(16);
  AlignedArray<uint16_t> scales(16);
  for (uint16_t& scale : scales)
    scale = 0x7e00;
  weights[3] = 0.5f;
  weights[7] = 1e-45f;  // the least that is not zero
  weights[9] = kNan;
  scales[9] = 0x3c00;
  for (const Isa isa : supported_isas()) {
    ops(isa).scale_weights(weights.data(), scales.data(), 16, out.data());
    for (size_t i = 0; i < 16; ++i) {
      if (i == 3 || i == 7 || i == 9) {
        EXPECT_TRUE(std::isnan(out[i])) << isa_name(isa) << " at " << i;
      } else {
        EXPECT_EQ(out[i], 0.0f) << isa_name(isa) << " at " << i;
      }
    }
  }
}

TEST(FromF16, ConvertsEveryHalf) {
  for (const Isa isa : supported_isas()) {
    AlignedArray<uint16_t> halves(0x10000);
    AlignedArray<float> out(0x10000);
    for (size_t i = 0; i < halves.size(); ++i)
      halves[i] = static_cast<uint16_t>(i);
    ops(isa).from_f16(halves.data(), 0x10000, out.data());
    for (size_t i = 0; i < halves.size(); ++i) {
      const float expected = f16_to_f32(halves[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(out[i])) << isa_name(isa) << " half " << i;
      } else {
        ASSERT_EQ(std::memcmp(&out[i], &expected, 4), 0) << isa_name(isa) << " half " << i;
      }
    }
  }
}

TEST(FromF16, WritesNothingBeyondTheEnd) {
  AlignedArray<uint16_t> halves(96);
  for (uint16_t& h : halves)
    h = 0x3c00;
  for (const Isa isa : supported_isas()) {
    for (int64_t n = 0; n <= 80; ++n) {
      AlignedArray<float> out(96);
      ops(isa).from_f16(halves.data(), n, out.data());
      for (int64_t i = 0; i < 96; ++i)
        ASSERT_EQ(out[at(i)], i < n ? 1.0f : 0.0f) << isa_name(isa) << " n " << n << " at " << i;
    }
  }
}

// Holds one kv head of random keys and values.
struct Head {
  int head_dim;
  int64_t capacity;
  std::vector<uint16_t> keys, values;

  Head(int dim, int64_t positions) : head_dim(dim), capacity(positions) {
    Random random(static_cast<uint64_t>(dim));
    for (auto* halves : {&keys, &values}) {
      for (int64_t i = 0; i < positions * dim; ++i)
        halves->push_back(f32_to_f16(static_cast<float>(random.normal())));
    }
  }
  float scale() const { return static_cast<float>(1 / std::sqrt(head_dim)); }

  // Query i is at position `position + i`, and all positions from `first` on belong to the cache.
  void run(Isa isa, const std::vector<float>& q, int heads, int64_t m, int64_t first,
           int64_t position, int64_t window, float* out, float* log_sums) const {
    const KvView view = {keys.data() + first * head_dim, values.data() + first * head_dim,
                         capacity - first, 1, head_dim};
    AlignedArray<float> scratch(at(attention_scratch(m, position - first + m, head_dim)));
    const AttentionOptions options{.window = window, .scale = scale()};
    ops(isa).attention({view, 0, heads, m, position - first, options, q.data(), heads * head_dim,
                        out, heads * head_dim, log_sums, scratch.data()});
  }
  double log_sum(const float* q, int64_t begin, int64_t end) const {
    std::vector<double> logits;
    for (int64_t j = begin; j < end; ++j) {
      double dot = 0;
      for (int d = 0; d < head_dim; ++d)
        dot += double{q[d]} * double{f16_to_f32(keys[at(j * head_dim + d)])};
      logits.push_back(dot * double{scale()});
    }
    const double largest = *std::max_element(logits.begin(), logits.end());
    double total = 0;
    for (const double logit : logits)
      total += std::exp(logit - largest);
    return largest + std::log(total);
  }
};

std::vector<float> random_queries(int64_t count, double size) {
  Random random(7);
  std::vector<float> q(at(count));
  for (float& v : q)
    v = static_cast<float>(size * random.normal());
  return q;
}

TEST(AttentionLogSums, AreThoseOfTheLogits) {
  for (const int head_dim : {16, 64, 80, 128}) {
    for (const int64_t window : {0, 70}) {
      for (const double size : {1.0, 30.0}) {
        for (const int64_t position : {0, 200}) {
          constexpr int64_t kQueries = 30;
          constexpr int kHeads = 5;  // more rows than a block of them
          const Head head(head_dim, position + kQueries);
          const int64_t width = kHeads * head_dim;
          const auto q = random_queries(kQueries * width, size);
          for (const Isa isa : supported_isas()) {
            std::vector<float> out(q.size()), same(q.size()), sums(at(kQueries * kHeads));
            head.run(isa, q, kHeads, kQueries, 0, position, window, out.data(), sums.data());
            head.run(isa, q, kHeads, kQueries, 0, position, window, same.data(), nullptr);
            EXPECT_EQ(out, same) << "asking for the sums changed the result";
            for (int64_t i = 0; i < kQueries; ++i) {
              const int64_t end = position + i + 1;
              const int64_t begin = window ? std::max<int64_t>(0, end - window) : 0;
              for (int h = 0; h < kHeads; ++h) {
                const double expected =
                    head.log_sum(q.data() + i * width + h * head_dim, begin, end);
                ASSERT_NEAR(sums[at(i * kHeads + h)], expected, 3e-6 * (1 + size))
                    << isa_name(isa) << " head_dim " << head_dim << " query " << i << " head " << h;
              }
            }
          }
        }
      }
    }
  }
}

TEST(AttentionLogSums, PutPartsOfThePositionsTogether) {
  for (const int head_dim : {64, 80}) {
    const int64_t position = 300;
    const Head head(head_dim, position + 1);
    const auto q = random_queries(head_dim, 4);
    for (const Isa isa : supported_isas()) {
      std::vector<float> whole(at(head_dim)), old(at(head_dim)), recent(at(head_dim));
      float whole_sum, old_sum, recent_sum;
      head.run(isa, q, 1, 1, 0, position, 0, whole.data(), &whole_sum);
      for (const int64_t cut : {1, 64, 130, 300}) {
        head.run(isa, q, 1, 1, 0, cut - 1, 0, old.data(), &old_sum);
        head.run(isa, q, 1, 1, cut, position, 0, recent.data(), &recent_sum);
        const double of_old = std::exp(double{old_sum} - double{whole_sum});
        const double of_recent = std::exp(double{recent_sum} - double{whole_sum});
        EXPECT_NEAR(of_old + of_recent, 1, 2e-6) << isa_name(isa);
        for (size_t d = 0; d < old.size(); ++d) {
          ASSERT_NEAR(of_old * double{old[d]} + of_recent * double{recent[d]}, whole[d], 1e-5)
              << isa_name(isa) << " cut " << cut << " at " << d;
        }
      }
    }
  }
}

}  // namespace
}  // namespace walsh
