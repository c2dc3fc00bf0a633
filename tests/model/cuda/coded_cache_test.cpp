// Tests sessions with coded caches on the GPU against those on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "gpu_models.h"
#include "model/cuda/coded_cache.h"
#include "short_run.h"
#include "walsh/error.h"
#include "weights/checkpoint_source.h"

namespace walsh {
namespace {

using test::all_logits;
using test::decode;
using test::divergence;
using test::logits_of;
using test::random_tokens;
using test::Rows;
using test::synthetic;

CacheTypes types_of(const char* keys, const char* values, int64_t window) {
  return {&get_cache_type(keys), &get_cache_type(values), window};
}

// This tolerance is for another order of additions: a value near a threshold gets another code.
constexpr double kSame = 5e-5;

class CudaCaches : public test::GpuTest {
 protected:
  // The weights are dense: what differs from the CPU is what caches and attention make of it.
  Model on_gpu(const CacheTypes& types) {
    return load(source_, gpu_, ActivationMode::automatic, types);
  }
  Model on_cpu(const CacheTypes& types) { return load(source_, {}, ActivationMode::f32, types); }

  SyntheticSource source_ = synthetic("f32", "f32");
  const std::vector<int32_t> tokens_ = random_tokens(700, 500, 7);
};

struct Kept {
  const char *keys, *values;
  int64_t window;
};

class CudaKeptSoMuch : public CudaCaches, public testing::WithParamInterface<Kept> {
 protected:
  CacheTypes types() const {
    return types_of(GetParam().keys, GetParam().values, GetParam().window);
  }
};

// Values near a threshold may get another code, since fp16 rows are rotated here before they are
// rounded.
TEST_P(CudaKeptSoMuch, PromptsAreThoseOfTheCpu) {
  const std::vector<int32_t> tokens(tokens_.begin(), tokens_.begin() + test::times(330, 150));
  const Rows half = logits_of(on_cpu({}), tokens), expected = logits_of(on_cpu(types()), tokens);
  const double lost = divergence(half, expected);
  EXPECT_GT(lost, 0);
  EXPECT_LT(divergence(expected, logits_of(on_gpu(types()), tokens)), 2e-5 + 0.04 * lost);
}

TEST_P(CudaKeptSoMuch, ThePartsOfATextDoNotMatter) {
  const int64_t all = test::times(330, 100);
  const std::vector<int32_t> tokens(tokens_.begin(), tokens_.begin() + all);
  const Model model = on_gpu(types());
  const Rows whole = logits_of(model, tokens);
  EXPECT_LT(divergence(whole, decode(model, tokens)), kSame);
  for (const int64_t part : {7, 33, 130}) {
    Session session(model, {all});
    Rows rows;
    for (int64_t begin = 0; begin < all; begin += part) {
      const int64_t end = std::min(all, begin + part);
      for (auto& row : all_logits(session, {tokens.begin() + begin, tokens.begin() + end}))
        rows.push_back(std::move(row));
    }
    EXPECT_LT(divergence(whole, rows), kSame) << "parts of " << part;
  }
}

TEST_P(CudaKeptSoMuch, SequencesDecodedTogetherEqualEachAlone) {
  const Model model = on_gpu(types());
  // Units are stored meanwhile.
  const auto [texts, rows] = test::decode_together(model, tokens_, test::times(70, 6));
  for (size_t s = 0; s < texts.size(); ++s)
    EXPECT_LT(divergence({logits_of(model, texts[s]).back()}, {rows[s]}), kSame)
        << "sequence " << s;
}

INSTANTIATE_TEST_SUITE_P(Types, CudaKeptSoMuch,
                         testing::Values(Kept{"tq3_0", "tq3_0", 32}, Kept{"tq3_0", "tq3_0", 0},
                                         Kept{"kt4", "q8_0", 7}, Kept{"f16", "kt3", 40},
                                         Kept{"q4_0", "f16", 0}, Kept{"kt2", "kt2", 100}));

// Tokens are kept with the error of having been stored: near what they were, and exact where they
// never were.
TEST_F(CudaCaches, TruncateContinuesFromAnEarlierToken) {
  const Model model = on_gpu(types_of("kt4", "kt4", 32));
  const int64_t all = test::times(300, 110);
  Session fresh(model, {all});
  const std::vector<int32_t> text(tokens_.begin(), tokens_.begin() + all);
  const Rows expected = all_logits(fresh, text);
  for (const int64_t kept : {all - 1, all - 50, int64_t{97}, int64_t{64}, int64_t{33}, int64_t{20},
                             int64_t{4}, int64_t{3}, int64_t{0}}) {
    Session session(model, {all});
    all_logits(session, text);
    session.truncate(kept);
    const Rows rows = all_logits(session, {text.begin() + kept, text.end()});
    const Rows same(expected.begin() + kept, expected.end());
    const double bound = kept <= 4 || kept == all - 1 ? kSame : 0.02;
    EXPECT_LT(divergence(same, rows), bound) << kept;
    session.truncate(kept);  // and token by token
    Rows single;
    for (int64_t i = kept; i < all; ++i)
      single.push_back(all_logits(session, {text[static_cast<size_t>(i)]}).back());
    EXPECT_LT(divergence(same, single), bound) << kept;
  }
}

TEST_F(CudaCaches, AWindowOverTheWholeContextIsHalfFloatsAlone) {
  const Rows half = logits_of(on_gpu({}), tokens_);
  EXPECT_LT(divergence(half, logits_of(on_gpu(types_of("tq3_0", "kt2", 699)), tokens_)), 1e-6);
}

// Layers whose queries see a chunk alone have no exact first positions, in prompts as in decoding.
// Sums in another order give a key or value near a threshold another code, which costs as much as
// the code is coarse: with 8 bits next to nothing, with 2 bits a share of what coding costs. Layers
// that attend to another layer's cache see only what that cache has kept of a prompt.
TEST_F(CudaCaches, ChunksOfAPromptAreThoseOfSingleTokens) {
  const Format& f32 = get_format("f32");
  const std::vector<int32_t> tokens(tokens_.begin(), tokens_.begin() + test::times(200, 100));
  for (const char* shape : {"tiny-chunks", "tiny-gemma4"}) {
    SyntheticSource source(shape, {&f32, &f32, &f32});
    const Rows half = logits_of(load(source, gpu_, ActivationMode::automatic, {}), tokens);
    for (const char* type : {"q8_0", "kt2"}) {
      const Model model = load(source, gpu_, ActivationMode::automatic, types_of(type, type, 0));
      const Rows prompt = logits_of(model, tokens);
      const double lost = divergence(half, prompt);
      EXPECT_LT(divergence(prompt, decode(model, tokens)), 2e-6 + 0.04 * lost)
          << shape << ' ' << type;
    }
  }
}

// Heads have 128 values; tokens are chosen by recorded steps.
TEST_F(CudaCaches, ATrainedModelGoesOnAsOnTheCpu) {
  CheckpointSource source = CheckpointSource::open(test::model_folder("walsh-tiny-13m"));
  const CacheTypes types = types_of("tq3_0", "tq3_0", 0);
  const Model cpu = load(source, {}, ActivationMode::f32, types);
  const Model gpu = load(source, gpu_, ActivationMode::automatic, types);
  const auto tokens = random_tokens(test::times(400, 120), cpu.config.vocab, 3);
  const Rows expected = logits_of(cpu, tokens);
  const Rows half = logits_of(load(source, {}, ActivationMode::f32), tokens);
  const Rows found = logits_of(gpu, tokens);
  const double lost = divergence(half, expected);
  EXPECT_LT(divergence(expected, found), 0.2 * lost);
  EXPECT_NEAR(divergence(half, found), lost, 0.1 * lost);
  Session chosen(gpu, {512}), read(gpu, {512});
  SamplerOptions greedy;
  greedy.temperature = 0;
  chosen.start_sampling(greedy, tokens);
  test::submit(chosen, tokens);
  int32_t token = chosen.take()[0];
  std::vector<float> logits = all_logits(read, tokens).back();
  for (int i = 0; i < test::times(70, 6); ++i) {
    ASSERT_EQ(token, std::max_element(logits.begin(), logits.end()) - logits.begin()) << i;
    test::submit(chosen, {});
    logits = all_logits(read, {token}).back();
    token = chosen.take()[0];
  }
}

// A third batch, whose results nobody fetches, fails after its layers: its sequence must start
// anew.
TEST_F(CudaCaches, AFailedBatchLeavesAnEmptySequence) {
  const Model model = on_gpu(types_of("tq3_0", "tq3_0", 32));
  const auto part = [&](int64_t begin, int64_t end) {
    return std::vector<int32_t>(tokens_.begin() + begin, tokens_.begin() + end);
  };
  Session session(model, {700});
  SamplerOptions greedy;
  greedy.temperature = 0;
  session.start_sampling(greedy, part(0, 1));
  test::submit(session, part(0, 90));
  test::submit(session, part(90, 100));
  EXPECT_THROW(test::submit(session, part(100, 400)), Error);
  session.take();
  session.take();
  EXPECT_EQ(session.position(0), 0);
  EXPECT_EQ(all_logits(session, part(0, 400)), logits_of(model, part(0, 400)));
}

TEST_F(CudaCaches, TakeLessMemory) {
  const ModelConfig config = parse_config(source_.config_json(), source_.path());
  const int64_t positions = 1 << 20;
  const auto bytes = [&](const char* type) {
    uint64_t sum = 0;
    for (const LayerDesc& layer : config.layers)
      sum += cuda::CodedLayer::bytes(
          types_of(type, type, 32), static_cast<int>(layer.attention.kv_heads),
          static_cast<int>(layer.attention.head_dim), positions / kGpuPagePositions, 1);
    return static_cast<double>(sum);
  };
  const double half = static_cast<double>(positions * static_cast<int64_t>(config.layers.size()) *
                                          widest(config).kv * 4);
  EXPECT_NEAR(bytes("tq3_0") / half, 3.5 / 16, 1e-3);
  EXPECT_NEAR(bytes("kt2") / half, 2.25 / 16, 1e-3);  // heads of 64: a scale is a quarter bit
}

TEST_F(CudaCaches, WhatTheKernelsDoNotReadIsRefusedByName) {
  const auto refusal = [&](WeightSource& source, const CacheTypes& types) {
    try {
      load(source, gpu_, ActivationMode::automatic, types);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage);
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refusal(source_, types_of("tq3_0:seed", "f16", 0)), testing::HasSubstr("tq3_0:seed"));
  CheckpointSource odd = CheckpointSource::open(test::tiny_model("qwen3-tiny"));
  EXPECT_THAT(refusal(odd, types_of("tq3_0", "tq3_0", 0)), testing::HasSubstr("heads"));
}

}  // namespace
}  // namespace walsh
