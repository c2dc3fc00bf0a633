#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "kernels/ops.h"

namespace walsh {
namespace {

// Holds a cache of random keys and values, with NaN where nothing may be read, and random queries.
struct Problem {
  int head_dim, kv_heads, heads;
  int64_t m, position, capacity, ldq, ldo;
  AttentionOptions options;
  double size;  // of the queries: logits have about this standard deviation
  int value_dim = 0;  // values are the beginnings of keys; 0: they have an array of their own
  std::vector<uint16_t> keys, values;
  std::vector<float> q;

  Problem(int dim, int group_heads, int64_t queries, int64_t first, int64_t visible,
          double query_size = 1)
      : head_dim(dim),
        kv_heads(2),
        heads(group_heads),
        m(queries),
        position(first),
        capacity(first + queries + 3),
        ldq(group_heads * dim + 5),
        ldo(group_heads * dim + 3),
        size(query_size) {
    options.window = visible;
    options.scale = static_cast<float>(1 / std::sqrt(dim));
    Random random(static_cast<uint64_t>(dim + 1000 * queries + 7 * first));
    const auto count = static_cast<size_t>(kv_heads * capacity * dim);
    keys.assign(count, 0x7e00);
    values.assign(count, 0x7e00);
    for (int64_t h = 0; h < kv_heads; ++h) {
      for (int64_t i = 0; i < (position + m) * dim; ++i) {
        const auto at = static_cast<size_t>(h * capacity * dim + i);
        keys[at] = f32_to_f16(static_cast<float>(random.normal()));
        values[at] = f32_to_f16(static_cast<float>(random.normal()));
      }
    }
    for (int64_t i = 0; i < m * ldq; ++i)
      q.push_back(static_cast<float>(size * random.normal()));
  }

  // Makes values the first `dim` numbers of keys.
  Problem& share(int dim) {
    value_dim = dim;
    values = keys;
    ldo = heads * dim + 3;
    return *this;
  }
  int width() const { return value_dim == 0 ? head_dim : value_dim; }
  KvView view() const {
    const uint16_t* of_values = value_dim == 0 ? values.data() : keys.data();
    return {keys.data(), of_values, capacity, kv_heads, head_dim, nullptr, value_dim};
  }
  GroupAttention call(int kv_head) const {
    GroupAttention call;
    call.kv = view();
    call.kv_head = kv_head;
    call.heads = heads;
    call.m = m;
    call.position = position;
    call.options = options;
    call.q = q.data();
    call.ldq = ldq;
    call.ldo = ldo;
    return call;
  }
  std::vector<float> run(Isa isa, int kv_head) const {
    std::vector<float> out(static_cast<size_t>(m * ldo), -7.0f);
    AlignedArray<float> scratch(static_cast<size_t>(attention_scratch(m, position + m, head_dim)));
    for (float& v : scratch)
      v = std::numeric_limits<float>::quiet_NaN();
    GroupAttention group = call(kv_head);
    group.out = out.data();
    group.scratch = scratch.data();
    ops(isa).attention(group);
    return out;
  }
  // Computes the textbook formula in double precision.
  std::vector<double> expected(int kv_head, int64_t i, int h) const {
    const int64_t end = position + i + 1;
    int64_t begin = options.window > 0 ? std::max<int64_t>(0, end - options.window) : 0;
    if (options.chunk > 0) begin = std::max(begin, (end - 1) / options.chunk * options.chunk);
    const auto element = [&](const std::vector<uint16_t>& kv, int64_t j, int d) {
      return double{f16_to_f32(kv[static_cast<size_t>((kv_head * capacity + j) * head_dim + d)])};
    };
    std::vector<double> logits;
    double largest = -1e300, total = 0;
    for (int64_t j = begin; j < end; ++j) {
      double dot = 0;
      for (int d = 0; d < head_dim; ++d) {
        dot += double{q[static_cast<size_t>(i * ldq + h * head_dim + d)]} * element(keys, j, d);
      }
      logits.push_back(dot * double{options.scale});
      largest = std::max(largest, logits.back());
    }
    std::vector<double> out(static_cast<size_t>(width()));
    for (int64_t j = begin; j < end; ++j) {
      const double weight = std::exp(logits[static_cast<size_t>(j - begin)] - largest);
      total += weight;
      for (int d = 0; d < width(); ++d)
        out[static_cast<size_t>(d)] += weight * element(values, j, d);
    }
    for (double& v : out)
      v /= total;
    return out;
  }
};

void expect_formula(const Problem& p) {
  for (const Isa isa : supported_isas()) {
    for (int kv_head = 0; kv_head < p.kv_heads; ++kv_head) {
      const auto out = p.run(isa, kv_head);
      for (int64_t i = 0; i < p.m; ++i) {
        for (int64_t c = p.heads * p.width(); c < p.ldo; ++c) {
          ASSERT_EQ(out[static_cast<size_t>(i * p.ldo + c)], -7.0f) << "wrote beyond the heads";
        }
        for (int h = 0; h < p.heads; ++h) {
          const auto expected = p.expected(kv_head, i, h);
          for (int d = 0; d < p.width(); ++d) {
            // A logit of size s is off by up to about sqrt(head_dim) * 2^-24 * s, its weight by as
            // much relative to itself; values are about 1 and below 5.
            const double tolerance = 2e-6 + 4e-6 * p.size;
            ASSERT_NEAR(out[static_cast<size_t>(i * p.ldo + h * p.width() + d)],
                        expected[static_cast<size_t>(d)], tolerance)
                << isa_name(isa) << " head_dim " << p.head_dim << " m " << p.m << " position "
                << p.position << " window " << p.options.window << " chunk " << p.options.chunk
                << " query " << i << " head " << h;
          }
        }
      }
    }
  }
}

TEST(Attention, AgreesWithTheFormulaForEveryHeadSize) {
  for (const int head_dim : {8, 16, 24, 32, 40, 48, 64, 80, 96, 112, 120, 128, 192, 256}) {
    expect_formula(Problem(head_dim, 1, 1, 70, 0));
    expect_formula(Problem(head_dim, 2, 5, 61, 0));
  }
}

// A cache of latents has them and the shared key side by side.
TEST(Attention, TakesTheBeginningsOfKeysAsValues) {
  for (const auto& [dim, width] : std::vector<std::pair<int, int>>{
           {16, 8}, {40, 24}, {48, 32}, {96, 88}, {160, 128}, {576, 512}}) {
    for (const int heads : {1, 3, 16}) {
      expect_formula(Problem(dim, heads, 1, 70, 0).share(width));
      expect_formula(Problem(dim, heads, 5, 61, 0).share(width));
    }
    expect_formula(Problem(dim, 5, 40, 30, 17).share(width));
  }
}

TEST(Attention, AgreesWithTheFormulaForEveryBatch) {
  for (const int64_t m : {1, 2, 3, 5, 6, 7, 13, 40}) {
    for (const int64_t position : {0, 1, 63, 64, 100}) {
      expect_formula(Problem(16, 1, m, position, 0));
      expect_formula(Problem(32, 3, m, position, 0));
    }
  }
}

// An fp16 value may be infinite where a model computed more than fp16 holds.
TEST(Attention, ValuesThatAreNotFiniteSpoilOnlyTheQueriesThatSeeThem) {
  for (const int heads : {1, 2, 7}) {
    for (const auto& [window, chunk] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {5, 0}, {70, 0}, {0, 6}, {5, 8}}) {
      for (const int64_t at : {0, 3, 61, 66, 79}) {
        Problem p(32, heads, 20, 60, window);
        p.options.chunk = chunk;
        const auto clean = p;
        for (const int64_t head : {0, 1})
          p.values[static_cast<size_t>((head * p.capacity + at) * 32 + 9)] = 0x7c00;
        for (const Isa isa : supported_isas()) {
          const auto out = p.run(isa, 1), expected = clean.run(isa, 1);
          for (int64_t i = 0; i < p.m; ++i) {
            const int64_t last = p.position + i;
            const bool seen = p.options.first_seen(last) <= at && at <= last;
            for (int64_t c = 0; c < heads * 32; ++c) {
              const auto place = static_cast<size_t>(i * p.ldo + c);
              if (seen && c % 32 == 9) {
                EXPECT_FALSE(std::isfinite(out[place]));
              } else {
                ASSERT_EQ(out[place], expected[place])
                    << isa_name(isa) << " heads " << heads << " window " << window << " chunk "
                    << chunk << " value of " << at << " query " << i << " column " << c;
              }
            }
          }
        }
      }
    }
  }
}

TEST(Attention, BlocksOfRowsJoin) {
  expect_formula(Problem(16, 4, 75, 3, 0));
  expect_formula(Problem(64, 7, 45, 200, 90));
}

TEST(Attention, ChunksHideThePositionsBeforeThem) {
  for (const int64_t chunk : {1, 7, 63, 64, 65, 500}) {
    for (const int64_t position : {0, 40, 260}) {
      for (const int64_t window : {0, 5, 64}) {
        Problem p(16, 2, 40, position, window);
        p.options.chunk = chunk;
        expect_formula(p);
      }
    }
  }
}

TEST(Attention, WindowsHideOlderPositions) {
  for (const int64_t window : {1, 2, 31, 63, 64, 65, 128, 500}) {
    for (const int64_t m : {1, 9, 40}) {
      for (const int64_t position : {0, 40, 260}) {
        expect_formula(Problem(16, 2, m, position, window));
      }
    }
  }
}

TEST(Attention, LongContextsAndSharpSoftmax) {
  expect_formula(Problem(64, 4, 1, 1000, 0));
  expect_formula(Problem(80, 1, 2, 999, 0, 8));
  expect_formula(Problem(128, 2, 3, 1000, 700, 30));
}

TEST(Attention, FirstPositionReturnsItsValue) {
  const Problem p(40, 2, 1, 0, 0, 3);
  for (const Isa isa : supported_isas()) {
    const auto out = p.run(isa, 1);
    for (int h = 0; h < 2; ++h) {
      for (int d = 0; d < 40; ++d) {
        const auto at = static_cast<size_t>(p.capacity * 40 + d);
        EXPECT_EQ(out[static_cast<size_t>(h * 40 + d)], f16_to_f32(p.values[at]));
      }
    }
  }
}

// The weights are then all equal, and so is the mean of equal values.
TEST(Attention, EqualLogitsGiveTheMean) {
  for (const float logit : {0.0f, 1e4f, -1e4f, 3e37f}) {
    Problem p(16, 1, 40, 200, 0);
    for (uint16_t& k : p.keys)
      k = k == 0x7e00 ? k : f32_to_f16(0.25f);
    for (uint16_t& v : p.values)
      v = v == 0x7e00 ? v : f32_to_f16(0.625f);
    for (float& v : p.q)
      v = logit / 16;
    for (const Isa isa : supported_isas()) {
      const auto out = p.run(isa, 0);
      for (int64_t i = 0; i < p.m; ++i) {
        for (int64_t d = 0; d < 16; ++d) {
          ASSERT_NEAR(out[static_cast<size_t>(i * p.ldo + d)], 0.625f, 1e-6) << isa_name(isa);
        }
      }
    }
  }
}

TEST(Attention, AQueryDoesNotDependOnItsBatch) {
  for (const int head_dim : {16, 24, 64, 128}) {
    for (const int64_t window : {0, 50}) {
      Problem p(head_dim, 17, 30, 150, window);
      if (window > 0) p.share(head_dim - 8);
      for (const Isa isa : supported_isas()) {
        const auto together = p.run(isa, 1);
        AlignedArray<float> scratch(
            static_cast<size_t>(attention_scratch(1, p.position + p.m, head_dim)));
        std::vector<float> alone(static_cast<size_t>(head_dim));
        for (int64_t i = 0; i < p.m; ++i) {
          for (int h = 0; h < p.heads; ++h) {
            GroupAttention call = p.call(1);
            call.heads = 1;
            call.m = 1;
            call.position += i;
            call.q += i * p.ldq + h * head_dim;
            call.out = alone.data();
            call.scratch = scratch.data();
            ops(isa).attention(call);
            for (int d = 0; d < p.width(); ++d) {
              ASSERT_EQ(alone[static_cast<size_t>(d)],
                        together[static_cast<size_t>(i * p.ldo + h * p.width() + d)])
                  << isa_name(isa) << " query " << i << " head " << h << " of " << d;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace walsh
