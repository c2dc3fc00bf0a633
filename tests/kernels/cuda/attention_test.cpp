#include "kernels/cuda/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/cuda/counted_memory.h"
#include "base/random.h"
#include "kernels/cuda/attention/prefill.h"
#include "kernels/cuda/attention_data.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

using Problem = AttentionProblem;

// `prompt` takes the device's best kernel, `prefill_mma` the one that all devices have.
enum class Kernel { decode, prompt, prefill_mma };
constexpr Kernel kPrompts[] = {Kernel::prompt, Kernel::prefill_mma};

void attend(Kernel kernel, const Problem& p, const AttentionCall& call,
            const AttentionScratch& scratch) {
  if (kernel == Kernel::prompt) {
    attend_prefill(call, nullptr);
  } else if (kernel == Kernel::prefill_mma) {
    detail::launch_prefill_mma(detail::prefill_args(call), nullptr);
  } else {
    attend_decode(call, p.longest(), scratch, nullptr);
  }
}

std::vector<float> run(Kernel kernel, const Problem& p) {
  return p.run([&](const AttentionCall& call, const AttentionScratch& scratch) {
    attend(kernel, p, call, scratch);
  });
}

// Prompts round queries and weights to fp16: with normal keys a logit of standard deviation `size`
// is off by about 2^-12 * size, a weight as much and 2^-12 more relative to itself; values stay
// below 5.
void expect_cpu(const Problem& p, Kernel kernel, double size = 1) {
  if (kernel == Kernel::decode) return expect_decoded(p, size);
  expect_attention(
      p,
      [&](const AttentionCall& call, const AttentionScratch& scratch) {
        attend(kernel, p, call, scratch);
      },
      1e-3 * (1 + size));
}

class GpuAttention : public testing::Test {
 protected:
  void SetUp() override {
    if (devices().empty()) GTEST_SKIP() << "no CUDA device: " << unavailable_reason();
  }
};

TEST_F(GpuAttention, DecodesAsTheCpuForEveryHeadSize) {
  for (const int dim : {8, 16, 24, 40, 64, 72, 80, 96, 112, 128, 136, 192, 256, 320, 512}) {
    expect_decoded(Problem({dim, 4, 2, 0}, {1, 130, 517}, static_cast<uint64_t>(dim)));
  }
}

TEST_F(GpuAttention, DecodesAsTheCpuForEveryGroup) {
  for (const auto& [heads, kv_heads] : std::vector<std::pair<int, int>>{
           {1, 1}, {3, 3}, {7, 1}, {8, 1}, {9, 1}, {14, 2}, {16, 1}, {20, 1}, {32, 8}}) {
    expect_decoded(Problem({64, heads, kv_heads, 0}, {63, 64, 65, 1000}, 7));
    expect_decoded(Problem({128, heads, kv_heads, 0}, {700}, 8));
  }
}

TEST_F(GpuAttention, DecodesAsTheCpuForEveryBatchAndLength) {
  Random random(3);
  for (const int64_t m : {1, 2, 5, 8, 16, 33, 70, 256}) {
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < m; ++i)
      lengths.push_back(1 + static_cast<int64_t>(random.below(600)));
    expect_decoded(Problem({64, 4, 1, 0}, lengths, 11));
    expect_decoded(Problem({64, 4, 1, 0}, lengths, 11), 1, 100000);
  }
  for (const int64_t length : {1, 15, 16, 17, 31, 33, 255, 256, 257, 4096, 20000})
    expect_decoded(Problem({64, 2, 1, 0}, {length}, 12));
}

TEST_F(GpuAttention, DecodesAsTheCpuWithWindowsAndLargeLogits) {
  for (const int64_t window : {1, 2, 16, 63, 64, 100, 1000, 5000}) {
    expect_decoded(Problem({64, 4, 2, window}, {1, 50, 64, 513, 2000}, 13));
    expect_decoded(Problem({256, 4, 2, window}, {1, 50, 64, 513, 2000}, 13));
  }
  for (const int64_t chunk : {1, 64, 100, 600}) {
    for (const int64_t window : {0, 70}) {
      expect_decoded(Problem({64, 4, 2, window, chunk}, {1, 50, 64, 513, 2000}, 13));
      expect_decoded(Problem({256, 4, 2, window, chunk}, {1, 50, 64, 513, 2000}, 13));
    }
  }
  expect_decoded(Problem({64, 4, 2, 0}, {900, 30}, 14, 8), 8);
  expect_decoded(Problem({128, 4, 2, 0}, {900, 30}, 15, 30), 30);
}

void expect_cpu_prompt(const Problem& p, double size = 1) {
  for (const Kernel kernel : kPrompts)
    expect_cpu(p, kernel, size);
}

TEST_F(GpuAttention, ReadsPromptsAsTheCpuForEveryHeadSize) {
  for (const int dim : {8, 24, 40, 64, 80, 96, 112, 128, 136, 192, 256, 320, 512}) {
    expect_cpu_prompt(Problem({dim, 2, 1, 0}, 200, 200, static_cast<uint64_t>(dim)));
    expect_cpu_prompt(Problem({dim, 3, 3, 0}, 333, 150, static_cast<uint64_t>(dim)));
  }
}

TEST_F(GpuAttention, ReadsPromptsAsTheCpuForEveryPlace) {
  for (const int64_t m : {1, 2, 17, 63, 64, 65, 128, 129, 300}) {
    for (const int64_t before : {0, 1, 63, 64, 100, 1000}) {
      expect_cpu_prompt(Problem({64, 4, 2, 0}, before + m, m, 21));
    }
    expect_cpu_prompt(Problem({256, 2, 1, 0}, 77 + m, m, 22));
  }
}

TEST_F(GpuAttention, ReadsPromptsAsTheCpuWithWindowsAndLargeLogits) {
  for (const int64_t window : {1, 2, 16, 63, 64, 100, 190, 1000}) {
    expect_cpu_prompt(Problem({64, 4, 2, window}, 500, 333, 23));
    expect_cpu_prompt(Problem({128, 2, 2, window}, 700, 200, 24));
    expect_cpu_prompt(Problem({256, 2, 1, window}, 300, 150, 25));
  }
  for (const int64_t chunk : {1, 64, 100, 600}) {
    for (const int64_t window : {0, 70}) {
      expect_cpu_prompt(Problem({64, 4, 2, window, chunk}, 500, 333, 23));
      expect_cpu_prompt(Problem({128, 2, 2, window, chunk}, 700, 200, 24));
      expect_cpu_prompt(Problem({256, 2, 1, window, chunk}, 300, 150, 25));
    }
  }
  expect_cpu_prompt(Problem({64, 4, 2, 0}, 300, 200, 26, 8), 8);
  expect_cpu_prompt(Problem({128, 4, 2, 0}, 300, 200, 27, 30), 30);
}

// Sinks lie below, among and above the logits; rows are in parts and whole.
TEST_F(GpuAttention, GivesSinksTheirShareAsTheCpu) {
  for (const float middle : {-20.0f, 0.0f, 6.0f, 200.0f}) {
    SCOPED_TRACE(middle);
    const auto run = [&](Problem p, std::initializer_list<Kernel> kernels) {
      for (int h = 0; h < p.shape.heads; ++h)
        p.sinks.push_back(middle + 0.5f * static_cast<float>(h));
      for (const Kernel kernel : kernels)
        expect_cpu(p, kernel);
    };
    for (const int dim : {40, 64, 96, 128, 256, 512}) {
      const auto seed = static_cast<uint64_t>(dim);
      for (const int64_t window : {0, 70}) {
        run(Problem({dim, 9, 1, window}, {1, 17, 130, 4000}, seed), {Kernel::decode});
        run(Problem({dim, 4, 2, window}, 200, 150, seed), {Kernel::prompt, Kernel::prefill_mma});
      }
    }
  }
}

// Caps lie below, among and above the logits, whose standard deviation is `size`.
TEST_F(GpuAttention, CapsLogitsAsTheCpu) {
  struct Capped {
    double size;
    float cap;
  };
  for (const auto& [size, cap] : {Capped{1, 0.5f}, Capped{8, 5}, Capped{30, 50}, Capped{3, 500}}) {
    SCOPED_TRACE(cap);
    const auto run = [&](Problem p, std::initializer_list<Kernel> kernels) {
      p.options.logit_cap = cap;
      for (const Kernel kernel : kernels)
        expect_cpu(p, kernel, size);
    };
    for (const int dim : {8, 40, 64, 72, 96, 112, 128, 136, 256, 512}) {
      for (const int64_t window : {0, 1, 70}) {
        const auto seed = static_cast<uint64_t>(dim);
        run(Problem({dim, 9, 1, window}, {1, 17, 130, 517}, seed, size), {Kernel::decode});
        run(Problem({dim, 2, 1, window}, 200, 150, seed, size),
            {Kernel::prompt, Kernel::prefill_mma});
      }
    }
  }
}

// Equal weights and values that are 0 except at one position per column count that position exactly
// once: the mean tells which positions are seen.
void expect_visible(Kernel kernel, int64_t window) {
  const bool prompt = kernel != Kernel::decode;
  Problem p = prompt ? Problem({64, 2, 1, window}, 300, 170, 31)
                     : Problem({64, 2, 1, window}, {300, 111, 4000}, 31);
  std::fill(p.q.begin(), p.q.end(), 0.0f);
  std::vector<std::vector<int64_t>> probes(p.lengths.size());
  for (size_t s = 0; s < p.lengths.size(); ++s) {
    for (int64_t j = 0; j < p.lengths[s]; ++j)
      std::fill_n(
          p.values.begin() + static_cast<std::ptrdiff_t>(p.at(static_cast<int64_t>(s), 0, j)), 64,
          uint16_t{0});
    for (int d = 0; d < 64; ++d) {
      const int64_t end = p.lengths[s];
      const int64_t near = d < 32 ? end - 1 - d : std::max<int64_t>(0, end - window) + d - 48;
      const int64_t probe = std::clamp<int64_t>(near, 0, end - 1);
      p.values[p.at(static_cast<int64_t>(s), 0, probe) + static_cast<size_t>(d)] = 0x6400;  // 1024
      probes[s].push_back(probe);
    }
  }
  const auto out = run(kernel, p);
  for (int64_t t = 0; t < p.rows(); ++t) {
    const int64_t end = p.positions[static_cast<size_t>(t)] + 1;
    const int64_t begin = window > 0 ? std::max<int64_t>(0, end - window) : 0;
    for (int d = 0; d < 64; ++d) {
      const int64_t probe =
          probes[static_cast<size_t>(p.sequences[static_cast<size_t>(t)])][static_cast<size_t>(d)];
      const bool seen = probe >= begin && probe < end;
      const double expected = seen ? 1024.0 / static_cast<double>(end - begin) : 0.0;
      ASSERT_NEAR(out[static_cast<size_t>(t * p.ldo + d)], expected, 1e-5 * expected)
          << "row " << t << " sees " << begin << " to " << end << ", position " << probe;
    }
  }
}

TEST_F(GpuAttention, SeesEveryVisiblePositionOnce) {
  for (const Kernel kernel : {Kernel::decode, Kernel::prompt, Kernel::prefill_mma})
    for (const int64_t window : {0, 1, 60, 64, 131})
      expect_visible(kernel, window);
}

TEST_F(GpuAttention, NanQueriesStayInTheirRow) {
  for (const Kernel kernel : {Kernel::decode, Kernel::prompt, Kernel::prefill_mma}) {
    const bool prompt = kernel != Kernel::decode;
    Problem p = prompt ? Problem({64, 2, 1, 0}, 100, 70, 41) : Problem({64, 2, 1, 0}, {90, 80}, 41);
    const auto clean = run(kernel, p);
    p.q[static_cast<size_t>(p.ldq + 3)] = std::numeric_limits<float>::quiet_NaN();  // row 1, head 0
    const auto out = run(kernel, p);
    for (int64_t t = 0; t < p.rows(); ++t) {
      for (int c = 0; c < 128; ++c) {
        const auto i = static_cast<size_t>(t * p.ldo + c);
        if (t == 1 && c < 64) {
          ASSERT_TRUE(std::isnan(out[i]));
        } else {
          ASSERT_EQ(out[i], clean[i]);
        }
      }
    }
  }
}

TEST_F(GpuAttention, RefusesShapesThatItCannotRead) {
  EXPECT_THROW(KvPool(1, 12, 1), Error);
  EXPECT_THROW(KvPool(1, 520, 1), Error);
  Problem p({64, 3, 2, 0}, {5}, 1);
  EXPECT_THROW(run(Kernel::decode, p), Error);
  p.shape.heads = 2;
  p.ldq = 129;
  EXPECT_THROW(run(Kernel::prompt, p), Error);
  p.ldq = 128;
  for (const float cap : {-1.0f, std::numeric_limits<float>::quiet_NaN()}) {
    p.options.logit_cap = cap;
    EXPECT_THROW(run(Kernel::decode, p), Error);
    EXPECT_THROW(run(Kernel::prompt, p), Error);
  }
}

// Kernels of all caches share the scratch; a row that is not split does not need it.
TEST_F(GpuAttention, ScratchHoldsThePartsOfEveryBatch) {
  constexpr int64_t kRows = 16, kReach = int64_t{1} << 40;
  for (int kv_heads = 1; kv_heads <= 64; ++kv_heads) {
    for (const int group : {1, 4, 9}) {
      const int heads = kv_heads * group;
      const uint64_t bytes = AttentionScratch::bytes(kRows, heads, kv_heads, 128);
      for (int64_t m = 1; m <= kRows; ++m) {
        for (int blocks = kLeastBlocks; blocks <= kMostBlocks; ++blocks) {
          const int splits = detail::attention_splits(m, heads, kv_heads, blocks, kReach);
          if (splits == 1) continue;
          ASSERT_LE(static_cast<uint64_t>(m * heads * splits * (128 + 2) * 4), bytes)
              << heads << "/" << kv_heads << " rows " << m << " blocks " << blocks;
        }
      }
    }
  }
}

TEST(GpuAttentionCap, MakesOfAProductWhatScalesToTheCappedLogit) {
  EXPECT_EQ(detail::attention_rule({}, nullptr).cap.power, 0);
  for (const float scale : {0.0625f, 0.125f, 1.0f}) {
    for (const float cap : {0.5f, 30.0f, 50.0f}) {
      const AttentionOptions options{.scale = scale, .logit_cap = cap};
      const LogitCap rule = detail::attention_rule(options, nullptr).cap;
      for (const double s : {-1e6, -300.0, -7.0, -1e-3, 0.0, 1e-3, 7.0, 300.0, 1e6}) {
        const double capped =
            double{rule.largest} * (1 - 2 / (std::exp2(double{rule.power} * s) + 1));
        EXPECT_NEAR(capped * double{scale},
                    double{cap} * std::tanh(double{scale} * s / double{cap}), 1e-6 * cap);
      }
    }
  }
}

// This is for a model, or a part of one, with recurrent layers only.
TEST(GpuAttentionScratch, IsNothingWithoutHeads) {
  const CountedMemory counted;
  const AttentionScratch scratch(16, 0, 0, 0);
  EXPECT_EQ(counted.bytes(), 0u);
  EXPECT_EQ(AttentionScratch::bytes(16, 0, 0, 0), 0u);
}

TEST(GpuAttentionReach, IsAPowerOfTwoThatCovers) {
  EXPECT_EQ(attention_reach(1), 256);
  EXPECT_EQ(attention_reach(256), 256);
  EXPECT_EQ(attention_reach(257), 512);
  EXPECT_EQ(attention_reach(131072), 131072);
}

}  // namespace
}  // namespace walsh::cuda
