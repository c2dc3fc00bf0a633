// Tests whole models on the GPU against the exact path of the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <sstream>
#include <thread>

#include "arch/plan.h"
#include "codec/kernels.h"
#include "gpu_models.h"
#include "model/cuda/memory_plan.h"
#include "quantize/pipeline/open.h"
#include "quantize/pipeline/pipeline.h"
#include "short_run.h"

namespace walsh {
namespace {

using test::decode;
using test::divergence;
using test::logits_of;
using test::random_tokens;
using test::synthetic;

class CudaModel : public test::GpuTest {};

// Turns a parameter into a part of a test's name, which has letters, digits and '_' only.
constexpr auto kParamName = [](const auto& info) {
  std::string name = info.param;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
};

std::vector<std::string> formats_of_the_gpu() {
  std::vector<std::string> names;
  for (const Format& format : all_formats())
    if (why_not(Device{true, 0}, format).empty()) names.emplace_back(format.name);
  return names;
}

// There is one test for each format, so that each is short where a checker makes it slow.
class CudaModelFormats : public CudaModel, public testing::WithParamInterface<std::string> {};

TEST_P(CudaModelFormats, IsCloseToTheExactPathOfTheCpu) {
  const Format& format = get_format(GetParam());
  const auto tokens = random_tokens(40, 500, 1);
  SyntheticSource source = synthetic(format.name, format.dense ? format.name : "f16");
  const test::Rows expected = logits_of(load(source, {}, ActivationMode::f32), tokens);
  EXPECT_LT(divergence(expected, logits_of(load(source, gpu_), tokens)), 1e-3);
  if (format.dense) return;
  EXPECT_LT(divergence(expected, logits_of(load(source, gpu_, ActivationMode::f16), tokens)), 1e-4);
  // With two planes, what is left are the levels rounded to int8.
  EXPECT_LT(divergence(expected, logits_of(load(source, gpu_, ActivationMode::i8x2), tokens)),
            3e-4);
}

// One token of one sequence is one launch where the formats of the model allow it.
TEST_P(CudaModelFormats, TokensDecodedOneByOneAreCloseToTheCpu) {
  const auto tokens = random_tokens(test::times(40, 6), 500, 10);
  SyntheticSource source = synthetic(GetParam(), "f16");
  const Model cpu = load(source, Device{}, ActivationMode::f32), gpu = load(source, gpu_);
  const test::Rows rows = decode(gpu, tokens);
  EXPECT_LT(divergence(logits_of(cpu, tokens), rows), 1e-3);
  EXPECT_EQ(rows, decode(gpu, tokens));
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaModelFormats, testing::ValuesIn(formats_of_the_gpu()),
                         kParamName);

class CudaModelEnds : public CudaModel, public testing::WithParamInterface<const char*> {};

TEST_P(CudaModelEnds, EmbeddingAndHeadMayBeCoded) {
  const auto tokens = random_tokens(20, 500, 2);
  SyntheticSource source = synthetic("tq4", GetParam());
  const test::Rows expected = logits_of(load(source, {}, ActivationMode::f32), tokens);
  EXPECT_LT(divergence(expected, logits_of(load(source, gpu_), tokens)), 1e-3);
}

// With many rows, and with one row and f16 activations, the head is dequantized in slices.
TEST_P(CudaModelEnds, AHeadMayBeCodedWhereLayersAreNot) {
  const auto tokens = random_tokens(140, 500, 14);
  SyntheticSource source = synthetic("f16", GetParam());
  const test::Rows expected = logits_of(load(source, {}, ActivationMode::f32), tokens);
  EXPECT_LT(divergence(expected, logits_of(load(source, gpu_), tokens)), 1e-3);
  const Model exact = load(source, gpu_, ActivationMode::f16);
  EXPECT_LT(divergence(expected, logits_of(exact, tokens)), 1e-4);
  EXPECT_LT(divergence(expected, decode(exact, tokens)), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Ends, CudaModelEnds,
                         testing::Values("q8_0", "q4_0", "tq3", "itq3_s8", "tq4+2", "pq3",
                                         "pq3:layer", "f32", "bf16"),
                         kParamName);

class CudaModelParts : public CudaModel, public testing::WithParamInterface<int> {};

// Batches of 1, of a few, of many rows and of several chunks take different kernels.
TEST_P(CudaModelParts, OfAPromptDoNotMatter) {
  const int64_t part = GetParam(), count = part == 1 ? test::times(60, 8) : 700;
  SyntheticSource source = synthetic("tq3", "bf16");
  const Model model = load(source, gpu_, ActivationMode::i8x2);
  const auto tokens = random_tokens(count, 500, 3);
  const test::Rows whole = logits_of(model, tokens);
  Session session(model, {count});
  test::Rows rows;
  for (int64_t begin = 0; begin < count; begin += part) {
    const int64_t n = std::min(part, count - begin);
    for (auto& row :
         test::all_logits(session, {tokens.begin() + begin, tokens.begin() + begin + n}))
      rows.push_back(std::move(row));
  }
  EXPECT_LT(divergence(whole, rows), 3e-4);  // levels rounded to int8
}

INSTANTIATE_TEST_SUITE_P(Rows, CudaModelParts, testing::Values(1, 5, 16, 40, 600));

class CudaModelMixes : public CudaModel, public testing::WithParamInterface<const char*> {};

// A single token is one launch, as with models of one format.
TEST_P(CudaModelMixes, OfFormatsAreCloseToTheCpu) {
  std::vector<std::string> types;
  std::istringstream names(GetParam());
  for (std::string name; std::getline(names, name, ',');)
    types.push_back(name);
  SyntheticSource source = test::synthetic_mix(types);
  const auto tokens = random_tokens(test::times(40, 6), 500, 15);
  const test::Rows expected = logits_of(load(source, Device{}, ActivationMode::f32), tokens);
  for (const auto mode : {ActivationMode::automatic, ActivationMode::i8}) {
    const Model gpu = load(source, gpu_, mode);
    EXPECT_LT(divergence(expected, logits_of(gpu, tokens)), 1e-3);
    const test::Rows rows = decode(gpu, tokens);
    EXPECT_LT(divergence(expected, rows), 1e-3);
    EXPECT_EQ(rows, decode(gpu, tokens));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaModelMixes,
                         testing::Values("tq2,tq3,tq4", "tq4,tq2", "itq3_s,tq4", "itq3_s8,tq2,q8_0",
                                         "tq3,tq4+4,f16", "pq3,tq3"),
                         kParamName);

class CudaModelRotatedBack : public CudaModel, public testing::WithParamInterface<std::string> {};

std::vector<std::string> formats_that_are_rotated_back() {
  std::vector<std::string> names;
  for (const Format& format : all_formats()) {
    const bool few = format.code[0].bits <= 4 && format.rotation_block <= 256;
    if (format.kind == CodeKind::scalar && format.rotation_block > 0 && few)
      names.emplace_back(format.name);
  }
  return names;
}

// Seed 000's way computes what the other one does; inputs are not rounded to int8.
TEST_P(CudaModelRotatedBack, IsCloseToTheCpuAndToRotatedActivations) {
  SyntheticSource source = synthetic(GetParam(), "f16");
  const auto tokens = random_tokens(40, 500, 16);
  const test::Rows expected = logits_of(load(source, Device{}, ActivationMode::f32), tokens);
  const Model usual = load(source, gpu_);
  const Model back = load(source, gpu_, ActivationMode::automatic, {}, true);
  const test::Rows prompt = logits_of(back, tokens), rows = decode(back, tokens);
  EXPECT_LT(divergence(expected, prompt), 1e-4);  // bf16 weights and inputs
  EXPECT_LT(divergence(expected, rows), 1e-4);
  EXPECT_LT(divergence(logits_of(usual, tokens), prompt), 1e-3);
  EXPECT_EQ(rows, decode(back, tokens));
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaModelRotatedBack,
                         testing::ValuesIn(formats_that_are_rotated_back()), kParamName);

TEST_F(CudaModel, WhatIsNotRotatedIsMultipliedAsEverWhereOthersAreRotatedBack) {
  SyntheticSource source = test::synthetic_mix({"tq3", "q8_0", "f16"});
  const auto tokens = random_tokens(20, 500, 17);
  const test::Rows expected = logits_of(load(source, Device{}, ActivationMode::f32), tokens);
  const Model back = load(source, gpu_, ActivationMode::automatic, {}, true);
  EXPECT_LT(divergence(expected, logits_of(back, tokens)), 3e-4);
  EXPECT_LT(divergence(expected, decode(back, tokens)), 3e-4);
  SyntheticSource plain = synthetic("q8_0", "f16"), wide = synthetic("tq3:full", "f16");
  EXPECT_THROW(load(plain, gpu_, ActivationMode::automatic, {}, true), Error);
  EXPECT_THROW(load(wide, gpu_, ActivationMode::automatic, {}, true), Error);
}

TEST_F(CudaModel, SequencesDecodedTogetherEqualEachAlone) {
  SyntheticSource source = synthetic("itq3_s", "tq4");
  const Model model = load(source, gpu_, ActivationMode::i8x2);
  constexpr int64_t kSequences = 5;
  SessionOptions options;
  options.max_positions = 300;
  options.sequences = kSequences;
  Session together(model, options);
  std::vector<std::vector<int32_t>> texts;
  for (int64_t s = 0; s < kSequences; ++s) {
    if (s > 0) together.open();
    texts.push_back(random_tokens(3 + 50 * s, 500, static_cast<uint64_t>(s)));
    together.forward(
        texts.back(), [](int64_t, std::span<const float>) {},
        static_cast<int64_t>(texts.back().size()), s);
  }
  test::Rows rows;
  for (int step = 0; step < 4; ++step) {  // the third one replays a recorded graph
    const auto next = random_tokens(kSequences, 500, 100 + static_cast<uint64_t>(step));
    rows.clear();
    test::decode(together, next, [&](size_t, int64_t, std::span<const float> logits) {
      rows.emplace_back(logits.begin(), logits.end());
    });
    for (size_t s = 0; s < kSequences; ++s)
      texts[s].push_back(next[s]);
  }
  for (size_t s = 0; s < kSequences; ++s)
    EXPECT_LT(divergence({logits_of(model, texts[s]).back()}, {rows[s]}), 3e-4) << s;
}

TEST_F(CudaModel, ReplayedStepsEqualDirectOnes) {
  SyntheticSource source = synthetic("tq4+2", "f16");
  const Model model = load(source, gpu_);
  const auto tokens = random_tokens(test::times(30, 8), 500, 9);
  const test::Rows first = decode(model, tokens);
  EXPECT_EQ(first, decode(model, tokens));
  EXPECT_LT(divergence(logits_of(model, tokens), first), 1e-3);
}

TEST_F(CudaModel, SessionsDecodeAtTheSameTime) {
  SyntheticSource source = synthetic("tq3", "f16");
  const Model model = load(source, gpu_);
  constexpr int kThreads = 4;
  const auto tokens = random_tokens(test::times(120, 8), 500, 11);
  const test::Rows expected = decode(model, tokens);
  test::Rows found[kThreads];
  std::vector<std::thread> threads;
  for (test::Rows& rows : found)
    threads.emplace_back([&] { rows = decode(model, tokens); });
  for (std::thread& thread : threads)
    thread.join();
  for (const test::Rows& rows : found)
    EXPECT_EQ(rows, expected);
}

TEST_F(CudaModel, EmptyBatchesDoNothing) {
  SyntheticSource source = synthetic("tq3", "f16");
  const Model model = load(source, gpu_);
  Session session(model, {64});
  session.submit({});
  const auto prompt = random_tokens(7, 500, 4);
  const test::Rows rows = test::all_logits(session, prompt);
  session.submit({});
  EXPECT_EQ(session.position(), 7);
  EXPECT_EQ(rows, logits_of(model, prompt));
}

TEST_F(CudaModel, TheBestTokenIsChosenOnTheDevice) {
  SyntheticSource source = synthetic("tq3", "f16");
  const Model model = load(source, gpu_);
  const auto prompt = random_tokens(7, 500, 4);
  Session chosen(model, {64}), read(model, {64});
  ASSERT_TRUE(chosen.can_sample());
  SamplerOptions greedy;
  greedy.temperature = 0;
  chosen.start_sampling(greedy, prompt);
  test::submit(chosen, prompt);
  int32_t token = chosen.take()[0];
  std::vector<float> logits = test::all_logits(read, prompt).back();
  for (int i = 0; i < 12; ++i) {
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    ASSERT_EQ(token, best) << "token " << i;
    test::submit(chosen, {});
    token = chosen.take()[0];
    logits = test::all_logits(read, {static_cast<int32_t>(best)}).back();
  }
}

// Steps that choose a token and steps whose logits are read are recorded apart.
TEST_F(CudaModel, ChoosingTokensAndReadingLogitsTakeTurns) {
  SyntheticSource source = synthetic("tq3", "f16");
  const Model model = load(source, gpu_);
  const auto prompt = random_tokens(7, 500, 12);
  const test::Rows expected = decode(model, prompt);
  Session session(model, {64});
  SamplerOptions greedy;
  greedy.temperature = 0;
  std::vector<int32_t> first;
  for (int turn = 0; turn < 4; ++turn) {
    session.reset();
    session.start_sampling(greedy, prompt);
    test::submit(session, prompt);
    std::vector<int32_t> text = {session.take()[0]};
    for (int i = 0; i < 5; ++i) {
      test::submit(session, {});
      text.push_back(session.take()[0]);
    }
    if (turn == 0) first = text;
    EXPECT_EQ(text, first) << "turn " << turn;
    session.reset();
    test::Rows rows;
    for (const int32_t token : prompt)
      rows.push_back(test::all_logits(session, {token}).back());
    EXPECT_EQ(rows, expected) << "turn " << turn;
  }
}

class CudaGolden : public CudaModel, public testing::WithParamInterface<const char*> {};

// These are real checkpoints of every family: biases, QK-norm, windows, tied heads.
TEST_P(CudaGolden, UnquantizedModelsAreCloseToTheCpu) {
  const std::string folder = test::model_folder(GetParam());
  if (folder.empty()) GTEST_SKIP() << GetParam() << " is not here";
  CheckpointSource source = CheckpointSource::open(folder);
  const Model cpu = load(source, {}), gpu = load(source, gpu_);
  const int64_t count = std::min<int64_t>(200, cpu.config.max_positions);
  const auto tokens = random_tokens(count, cpu.config.vocab, 5);
  EXPECT_LT(divergence(logits_of(cpu, tokens), logits_of(gpu, tokens)), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Models, CudaGolden,
                         testing::Values("llama2-bias-tiny", "llama31-tiny", "mistral-tiny",
                                         "qwen2-tiny", "qwen2-window-tiny", "qwen3-tiny",
                                         "walsh-tiny-13m", "walsh-ref-27m", "walsh-qwen3-16m"),
                         kParamName);

class CudaModelCompressed : public CudaModel, public testing::WithParamInterface<const char*> {};

// A model that is encoded on the GPU and kept there is compared with a file that the CPU wrote.
TEST_P(CudaModelCompressed, WhileLoadingEqualsTheFile) {
  const std::string folder = test::model_folder("walsh-tiny-13m");
  const std::string file =
      testing::TempDir() + "walsh_compressed_while_loading_" + GetParam() + ".gguf";
  const auto tokens = random_tokens(20, 500, 6);
  Recipe recipe;
  recipe.type = &get_format(GetParam());
  recipe.embed_type = &get_format("q8_0");
  recipe.encode.effort = Effort::fast;
  quantize_to_file(*open_compressor(folder, recipe, pool_), file, {});
  const auto online = open_compressor(folder, recipe, pool_);
  const auto written = open_source(file, nullptr, pool_);
  EXPECT_EQ(logits_of(load(*online, gpu_), tokens), logits_of(load(*written, gpu_), tokens));
  std::filesystem::remove(file);
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaModelCompressed, testing::Values("tq3", "itq3_s8", "tq4+4"),
                         kParamName);

TEST_F(CudaModel, WhatDoesNotFitIsRefusedWithNumbersBeforeLoading) {
  SyntheticSource source("70b", {&get_format("bf16"), &get_format("bf16"), &get_format("bf16")});
  const ModelConfig config = parse_config(source.config_json(), source.path());
  LoadOptions options;
  options.pool = &pool_;
  options.device = gpu_;
  options.device_bytes = uint64_t{32} << 30;
  try {
    Model::load(source, config, options);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::limit);
    EXPECT_THAT(e.what(), testing::HasSubstr("weights 129."));
    EXPECT_THAT(e.what(), testing::HasSubstr("available 32.00 GiB"));
  }
}

TEST_F(CudaModel, FormatsWithoutGpuKernelsAreRefusedByName) {
  SyntheticSource source = synthetic("tc3:hq", "f16");
  try {
    load(source, gpu_);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_THAT(e.what(), testing::HasSubstr("tc3:hq"));
  }
}

TEST_F(CudaModel, SeventyBillionWeightsAtThreeBitsFitInto32GiB) {
  const Format& ends = get_format("tq4");
  SyntheticSource source("70b", {&get_format("itq3_s"), &ends, &ends});
  const ModelConfig config = parse_config(source.config_json(), source.path());
  LoadOptions options;
  options.use.max_positions = 4096;
  const MemoryPlan plan = plan_cuda_memory(source, config, options, uint64_t{32} << 30);
  EXPECT_LE(plan.total(), uint64_t{32} << 30) << plan.text();
  EXPECT_EQ(plan.cache >> 12, uint64_t{4096} * 80 * 8 * 128 * 4 >> 12) << "and a page table";
  EXPECT_GE(plan.max_rows, 512);
  EXPECT_THROW(plan_cuda_memory(source, config, options, uint64_t{24} << 30), Error);
  options.use.sequences = 8;
  EXPECT_THROW(plan_cuda_memory(source, config, options, uint64_t{32} << 30), Error);
}

}  // namespace
}  // namespace walsh
