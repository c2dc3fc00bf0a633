#include "kernels/cuda/sampling/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/random.h"
#include "cuda_buffers.h"
#include "generate/sampler.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

using test::to_device;
using test::to_host;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Holds m rows, each with a sampler of its own on the CPU and a state on the GPU.
class Rows {
 public:
  static constexpr int64_t kHistory = 100;

  Rows(const SamplerOptions& options, int64_t m, int64_t vocab)
      : Rows(std::vector<SamplerOptions>{options}, m, vocab) {}
  // Rows take the options in turn.
  Rows(const std::vector<SamplerOptions>& options, int64_t m, int64_t vocab)
      : m_(m), vocab_(vocab), scratch_(m, vocab) {
    std::vector<SampleState> states;
    for (int64_t t = 0; t < m; ++t) {
      SamplerOptions own = options[static_cast<size_t>(t) % options.size()];
      own.seed += static_cast<uint64_t>(t);
      cpu_.emplace_back(own);
      states.push_back(sample_state(own, vocab, 0));
      draws_ = draws_ || own.temperature != 0;
    }
    states_ = to_device(states);
    history_ = Buffer(static_cast<uint64_t>(m * kHistory) * 4, true);
    next_ = Buffer(static_cast<uint64_t>(m) * 4, true);
  }

  std::vector<int32_t> gpu(const std::vector<float>& logits) {
    const Buffer device = to_device(logits);
    SampleCall call;
    call.logits = device.as<const float>();
    call.ldl = static_cast<int64_t>(logits.size()) / m_;
    call.vocab = vocab_;
    call.m = m_;
    call.states = states_.as<SampleState>();
    call.history = history_.as<int32_t>();
    call.history_stride = kHistory;
    call.draws = draws_;
    call.next = next_.as<int32_t>();
    sample(call, scratch_, nullptr);
    return to_host<int32_t>(next_);
  }

  std::vector<int32_t> cpu(const std::vector<float>& logits) {
    std::vector<int32_t> out;
    const auto stride = static_cast<int64_t>(logits.size()) / m_;
    for (int64_t t = 0; t < m_; ++t) {
      Sampler& sampler = cpu_[static_cast<size_t>(t)];
      out.push_back(sampler.sample({logits.data() + t * stride, static_cast<size_t>(vocab_)}));
      sampler.accept(out.back());
    }
    return out;
  }

 private:
  int64_t m_, vocab_;
  bool draws_ = false;
  SampleScratch scratch_;
  std::vector<Sampler> cpu_;
  Buffer states_, history_, next_;
};

// The kinds of logits are: normal, few distinct values (ties), all equal, one far above, with NaN
// and negative infinity, zeros, infinity twice in every other row.
std::vector<float> make_logits(int kind, int64_t m, int64_t stride, Random& random) {
  std::vector<float> out(static_cast<size_t>(m * stride));
  for (float& v : out) {
    const double normal = random.normal();
    v = static_cast<float>(kind == 1 ? std::round(2 * normal) : kind == 2 ? -0.5 : 3 * normal);
    if (kind == 4 && random.below(3) == 0) v = random.below(2) ? kNaN : -kInfinity;
    if (kind == 5) v = random.below(2) ? 0.0f : -0.0f;
  }
  if (kind == 3)
    out[out.size() / 2 / static_cast<size_t>(stride) * static_cast<size_t>(stride)] = 60;
  for (int64_t t = 0; t < m; ++t)
    out[static_cast<size_t>(t * stride)] += 0.25f;  // at least one number per row
  if (kind == 4) {
    for (int64_t t = 0; t < m; ++t)
      out[static_cast<size_t>(t * stride)] = 0.5f;
  }
  for (int64_t t = 0; kind == 6 && t < m; t += 2) {
    out[static_cast<size_t>(t * stride + stride / 2)] = kInfinity;
    out[static_cast<size_t>(t * stride + stride / 3)] = kInfinity;
  }
  return out;
}

void expect_cpu_tokens(const SamplerOptions& options, int64_t m, int64_t vocab, int steps,
                       std::vector<int> kinds = {0, 1, 2, 3, 4, 5}) {
  Random random(options.seed);
  Rows rows(options, m, vocab);
  for (const int kind : kinds) {
    for (int step = 0; step < steps; ++step) {
      const auto logits = make_logits(kind, m, vocab + 3, random);
      ASSERT_EQ(rows.gpu(logits), rows.cpu(logits))
          << "vocabulary " << vocab << " kind " << kind << " step " << step << " temperature "
          << options.temperature << " top_k " << options.top_k << " top_p " << options.top_p
          << " min_p " << options.min_p;
    }
  }
}

class GpuSampling : public testing::Test {
 protected:
  void SetUp() override {
    if (devices().empty()) GTEST_SKIP() << "no CUDA device: " << unavailable_reason();
  }
};

TEST_F(GpuSampling, ChoosesTheCpusTokensWithTheDefaults) {
  for (const int64_t vocab : {1, 2, 39, 300, 2048, 2049, 5000, 32000})
    expect_cpu_tokens({}, 3, vocab, 3);
  expect_cpu_tokens({}, 2, 128256, 2);
  expect_cpu_tokens({}, 1, kMaxSampledVocab, 1);
}

TEST_F(GpuSampling, GreedyTakesTheLowestIdAmongEquals) {
  for (const int64_t vocab : {1, 5, 2048, 40000})
    expect_cpu_tokens({.temperature = 0}, 4, vocab, 2);
}

class GpuSamplingChains : public GpuSampling, public testing::WithParamInterface<int> {};

TEST_P(GpuSamplingChains, ChooseTheCpusTokens) {
  const int top_k = GetParam();
  uint64_t seed = static_cast<uint64_t>(top_k) + 1;
  for (const float top_p : {0.0f, 0.5f, 0.95f, 1.0f}) {
    for (const float min_p : {0.0f, 0.01f, 0.3f, 1.0f}) {
      SamplerOptions options{.temperature = 1.3f, .top_k = top_k, .top_p = top_p, .min_p = min_p};
      options.seed = seed++;
      expect_cpu_tokens(options, 2, 9000, 1);
      expect_cpu_tokens(options, 1, 700, 1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryTopK, GpuSamplingChains, testing::Values(0, 1, 5, 1000, 100000));

// Infinity is chosen without a draw, so that later ones are the same.
TEST_F(GpuSampling, InfinityIsChosenByEveryChain) {
  for (const SamplerOptions& options :
       {SamplerOptions{}, SamplerOptions{.top_k = 0, .top_p = 1, .min_p = 0},
        SamplerOptions{.top_k = 0, .top_p = 0.9f, .min_p = 0}, SamplerOptions{.min_p = 0},
        SamplerOptions{.top_k = 0, .top_p = 1, .min_p = 0.1f}, SamplerOptions{.temperature = 0}}) {
    for (const int64_t vocab : {50, 9000})
      expect_cpu_tokens(options, 3, vocab, 1, {6, 0, 6, 1});
  }
}

TEST_F(GpuSampling, ChoosesAmongAllTokensOfALargeVocabulary) {
  for (const float top_p : {0.9f, 1.0f}) {
    const SamplerOptions options{.temperature = 2, .top_k = 0, .top_p = top_p, .min_p = 0};
    expect_cpu_tokens(options, 1, 128256, 1);
  }
}

TEST_F(GpuSampling, PenalizesRecentTokensAsTheCpu) {
  for (const int last : {0, 3, 64, -1}) {
    for (const float penalty : {0.5f, 1.8f}) {
      expect_cpu_tokens({.repeat_penalty = penalty, .repeat_last_n = last}, 2, 37, 12, {0, 1});
      expect_cpu_tokens({.temperature = 0, .repeat_penalty = penalty, .repeat_last_n = last}, 2,
                        3000, 12, {1});
    }
  }
}

TEST_F(GpuSampling, EveryRowHasItsOwnOptions) {
  const std::vector<SamplerOptions> options = {
      {},
      {.temperature = 0},
      {.temperature = 0, .repeat_penalty = 1.5f},
      {.temperature = 1.4f, .top_k = 0, .top_p = 0.9f, .min_p = 0},
      {.temperature = 0.7f, .top_k = 3, .repeat_penalty = 0.7f, .repeat_last_n = 4},
      {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0}};
  for (const int64_t vocab : {37, 3000}) {
    Random random(5);
    Rows rows(options, 9, vocab);
    for (int step = 0; step < 12; ++step) {
      const auto logits = make_logits(step % 2, 9, vocab + 1, random);
      ASSERT_EQ(rows.gpu(logits), rows.cpu(logits)) << "vocabulary " << vocab << " step " << step;
    }
  }
}

// Blocks go through several slices of a row then, up to sixteen.
TEST_F(GpuSampling, ManyRowsHaveTheCpusTokens) {
  const std::vector<SamplerOptions> options = {
      {},
      {.temperature = 0, .repeat_penalty = 1.5f},
      {.temperature = 1.4f, .top_k = 0, .top_p = 0.9f, .min_p = 0},
      {.temperature = 0.7f, .top_k = 3, .repeat_penalty = 0.7f},
      {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0.1f}};
  for (const auto& [m, vocab] : {std::pair{45, 32001}, std::pair{70, 128256}}) {
    Random random(6);
    Rows rows(options, m, vocab);
    for (int step = 0; step < 3; ++step) {
      const auto logits = make_logits(step % 2, m, vocab + 1, random);
      ASSERT_EQ(rows.gpu(logits), rows.cpu(logits)) << "vocabulary " << vocab << " step " << step;
    }
  }
}

TEST_F(GpuSampling, MarksRowsWithoutAFiniteLogit) {
  for (const float temperature : {0.0f, 1.0f}) {
    Rows rows(SamplerOptions{.temperature = temperature}, 2, 50);
    std::vector<float> logits(100, -kInfinity);
    logits[3] = kNaN;
    logits[70] = 1;
    EXPECT_EQ(rows.gpu(logits), (std::vector<int32_t>{-1, 20}));
    logits[7] = 2;
    EXPECT_EQ(rows.gpu(logits), (std::vector<int32_t>{7, 20}));
  }
}

TEST_F(GpuSampling, DrawsFollowTheProbabilities) {
  constexpr int64_t kRows = 64;
  Rows rows(SamplerOptions{.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0}, kRows, 3);
  std::vector<float> logits;
  for (int64_t t = 0; t < kRows; ++t)
    logits.insert(logits.end(), {std::log(0.5f), std::log(0.2f), std::log(0.3f)});
  int count[3] = {};
  for (int step = 0; step < 50; ++step)
    for (const int32_t token : rows.gpu(logits))
      ++count[token];
  EXPECT_NEAR(count[0] / 3200.0, 0.5, 0.04);
  EXPECT_NEAR(count[1] / 3200.0, 0.2, 0.04);
  EXPECT_NEAR(count[2] / 3200.0, 0.3, 0.04);
}

TEST_F(GpuSampling, MakesTheNextBatchAndTellsTheHost) {
  constexpr int64_t kVocab = 50, kRows = 2;
  const SampleScratch scratch(kRows, kVocab);
  std::vector<float> logits(static_cast<size_t>(kRows * kVocab));
  logits[7] = logits[kVocab + 31] = 9;
  const Buffer device = to_device(logits);
  const Buffer next(7 * 4, true), tokens = to_device(std::vector<int32_t>(2));
  const Buffer positions = to_device(std::vector<int32_t>{40, 50});
  const Buffer sequences = to_device(std::vector<int32_t>{6, 5});
  SamplerOptions options;
  options.temperature = 0;
  const Buffer states = to_device(std::vector<SampleState>(7, sample_state(options, kVocab, 0)));
  PinnedBuffer host(kRows * 4);
  SampleCall call;
  call.logits = device.as<const float>();
  call.ldl = call.vocab = kVocab;
  call.m = kRows;
  call.next = next.as<int32_t>();
  call.host = host.as<int32_t>();
  call.states = states.as<SampleState>();
  call.draws = false;
  call.rows = {tokens.as<int32_t>(), positions.as<int32_t>(), sequences.as<int32_t>(), nullptr,
               true};
  sample(call, scratch, nullptr);
  EXPECT_EQ(to_host<int32_t>(next), (std::vector<int32_t>{0, 0, 0, 0, 0, 31, 7}));
  EXPECT_EQ(host.as<int32_t>()[0], 7);
  EXPECT_EQ(host.as<int32_t>()[1], 31);
  EXPECT_EQ(to_host<int32_t>(tokens), (std::vector<int32_t>{7, 31}));
  EXPECT_EQ(to_host<int32_t>(positions), (std::vector<int32_t>{41, 51}));
  EXPECT_EQ(to_host<int32_t>(sequences), (std::vector<int32_t>{6, 5}));
  const Buffer asked = to_device(std::vector<int32_t>{-1, 9, -1});
  const Buffer whose = to_device(std::vector<int32_t>{5, 5, 6});
  take_chosen(asked.as<int32_t>(), whose.as<int32_t>(), next.as<int32_t>(), 3, nullptr);
  EXPECT_EQ(to_host<int32_t>(asked), (std::vector<int32_t>{31, 9, 7}));
}

// The launch has the last rows of two prompts and a row between them.
TEST_F(GpuSampling, ChoosesForSomeRowsOfABatch) {
  constexpr int64_t kVocab = 50, kRows = 3;
  const SampleScratch scratch(kRows, kVocab);
  std::vector<float> logits(static_cast<size_t>(kRows * kVocab));
  logits[7] = logits[kVocab + 31] = logits[2 * kVocab + 11] = 9;
  const Buffer device = to_device(logits), next(4 * 4, true);
  const Buffer sequences = to_device(std::vector<int32_t>{2, 2, 0, 3, 3, 3});
  const Buffer wanted = to_device(std::vector<int32_t>{1, 2, 5});
  SamplerOptions options;
  options.temperature = 0;
  const Buffer states = to_device(std::vector<SampleState>(4, sample_state(options, kVocab, 0)));
  SampleCall call;
  call.logits = device.as<const float>();
  call.ldl = call.vocab = kVocab;
  call.m = kRows;
  call.next = next.as<int32_t>();
  call.states = states.as<SampleState>();
  call.rows.sequences = sequences.as<int32_t>();
  call.rows.wanted = wanted.as<int32_t>();
  sample(call, scratch, nullptr);
  EXPECT_EQ(to_host<int32_t>(next), (std::vector<int32_t>{31, 0, 7, 11}));
}

TEST_F(GpuSampling, RefusesVocabulariesBeyondItsScratch) {
  const SampleScratch scratch(1, 100);
  SampleCall call;
  call.m = 1;
  call.vocab = 200;
  EXPECT_THROW(sample(call, scratch, nullptr), Error);
}

}  // namespace
}  // namespace walsh::cuda
