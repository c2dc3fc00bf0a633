// Tests the public API on the embedded model.
#include "walsh/engine.h"

#include <gtest/gtest.h>

#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "quantize/sealed_file.h"
#include "swap_tokens.h"
#include "walsh/error.h"
#include "walsh/stop.h"

namespace walsh {
namespace {

const std::string kModel = std::string(WALSH_SOURCE_DIR) + "/models/walsh-tiny-13m";
const std::string kText =
    "The river was low that summer, and the children walked across it on the flat stones. "
    "Nobody could remember a year in which the mill had stood still for so long. In the evening "
    "the old men sat under the trees and talked about the rain that had not come.";

TEST(Engine, FileAndCompressionWhileLoadingGiveTheSameText) {
  CompressOptions compress;
  compress.type = "tq4";
  compress.fast = true;
  const std::string file = (std::filesystem::temp_directory_path() /
                            ("walsh_engine_" + std::to_string(getpid()) + ".gguf"))
                               .string();
  size_t calls = 0;
  const CompressReport report = quantize(kModel, file, compress, 2, [&](size_t done, size_t all) {
    EXPECT_LE(done, all);
    ++calls;
    return true;
  });
  EXPECT_GT(calls, 40u);
  EXPECT_NEAR(report.bits_per_weight, 4.13, 0.02);
  EXPECT_EQ(report.file_bytes, std::filesystem::file_size(file));

  GenerationOptions greedy;
  greedy.temperature = 0;
  greedy.max_tokens = 12;
  Engine from_file = Engine::open(file);
  EngineOptions online;
  online.compress = compress;
  Engine from_folder = Engine::open(kModel, online);
  const std::string text = from_file.generate("The city of London", greedy).text;
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(from_folder.generate("The city of London", greedy).text, text);
  EXPECT_DOUBLE_EQ(from_folder.bits_per_weight(), from_file.bits_per_weight());
  std::remove(file.c_str());
}

TEST(Engine, KnowsDamagedMetadataAndSaysWhereItCouldNot) {
  CompressOptions compress;
  compress.type = "tq3";
  compress.fast = true;
  const std::string file = (std::filesystem::temp_directory_path() /
                            ("walsh_notes_" + std::to_string(getpid()) + ".gguf"))
                               .string();
  EXPECT_TRUE(quantize(kModel, file, compress, 2).notes.empty());
  EXPECT_TRUE(Engine::open(file).notes().empty());
  std::ifstream in(file, std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(in), {}};

  std::string bad = good;
  bad[bad.find("rope_theta") + 13] ^= 1;
  std::ofstream(file, std::ios::binary) << bad;
  try {
    Engine::open(file);
    ADD_FAILURE() << "damage not found";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_input);
    EXPECT_NE(std::string(e.what()).find("header: checksum"), std::string::npos) << e.what();
  }

  write_unsealed(good, file, 1);
  const Engine old = Engine::open(file);
  ASSERT_EQ(old.notes().size(), 1u);
  EXPECT_NE(old.notes()[0].find("older walsh"), std::string::npos) << old.notes()[0];

  compress.rotation = "none";  // the weights are not Gaussian then
  compress.shape_gain = true;
  const CompressReport report = quantize(kModel, file, compress, 2);
  ASSERT_FALSE(report.notes.empty());
  EXPECT_NE(report.notes[0].find("times the bound"), std::string::npos) << report.notes[0];
  std::remove(file.c_str());
}

TEST(Engine, StreamsWhatItReturnsAndStopsWhenTold) {
  Engine engine = Engine::open(kModel);
  GenerationOptions options;
  options.max_tokens = 8;
  std::string streamed;
  const GenerationResult result = engine.generate("Once", options, [&](std::string_view piece) {
    streamed += piece;
    return true;
  });
  EXPECT_EQ(streamed, result.text);
  EXPECT_EQ(result.tokens, 8);
  EXPECT_EQ(result.prompt_tokens, static_cast<int64_t>(engine.encode_prompt("Once").size()));
  EXPECT_EQ(result.reason, FinishReason::max_tokens);
  options.seed = result.seed;
  EXPECT_EQ(engine.generate("Once", options).text, streamed) << "the seed that was drawn is told";
  int pieces = 0;
  engine.generate("Once", options, [&](std::string_view) { return ++pieces < 2; });
  EXPECT_LE(pieces, 3);
  options.max_tokens = 0;
  EXPECT_EQ(engine.generate("Once", options).text, "");
  options.top_p = 2;
  EXPECT_THROW(engine.generate("Once", options), Error);
}

TEST(Engine, LayersOnAGpuNeedOneAndNoneAreTheCpu) {
  EngineOptions options;
  options.device = "cpu";
  Engine cpu = Engine::open(kModel, options);
  options.gpu_layers = 1;
  try {
    Engine::open(kModel, options);
    ADD_FAILURE() << "there is no GPU";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_EQ(e.where(), "gpu-layers");
  }
  options.device = "auto";
  options.gpu_layers = 0;
  Engine none = Engine::open(kModel, options);
  EXPECT_EQ(none.device(), "cpu");
  const auto tokens = cpu.encode("The city of London");
  EXPECT_EQ(none.logits(tokens), cpu.logits(tokens));
  options.cpu_experts = -1;
  EXPECT_THROW(Engine::open(kModel, options), Error) << "a negative number";
  options.cpu_experts = 1;
  EXPECT_THROW(Engine::open(kModel, options), Error) << "the model has no experts";
}

TEST(Engine, NothingComesAfterTheCallbackHasSaidStop) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("walsh_engine_stop_" + std::to_string(getpid()));
  std::filesystem::copy(kModel, folder, std::filesystem::copy_options::recursive);
  // Greedy decoding continues with " a", which is now a space and a third of a character; the rest
  // is held back until the text ends.
  swap_tokens(folder / "tokenizer.json", kWordA, kHalfCharacter);
  Engine engine = Engine::open(folder);
  GenerationOptions greedy;
  greedy.temperature = 0;
  std::vector<std::string> pieces;
  const GenerationResult result =
      engine.generate("The city of London is", greedy, [&](std::string_view piece) {
        pieces.emplace_back(piece);
        return false;
      });
  EXPECT_EQ(pieces, std::vector<std::string>{" "});
  EXPECT_EQ(result.text, " ");
  EXPECT_EQ(result.reason, FinishReason::stopped);
  std::filesystem::remove_all(folder);
}

TEST(Engine, ARequestToStopEndsATextAndRefusesMore) {
  Engine engine = Engine::open(kModel);
  GenerationOptions options;
  options.max_tokens = -1;
  std::atomic<bool> flag = false;
  const StopScope scope(flag);
  size_t calls = 0;
  const GenerationResult result = engine.generate("Once", options, [&](std::string_view) {
    flag = ++calls == 3;
    return true;
  });
  EXPECT_EQ(calls, 3u);
  EXPECT_FALSE(result.text.empty());
  const auto refused = [&](const auto& action) {
    try {
      action();
    } catch (const Error& e) {
      return e.code() == ErrorCode::interrupted;
    }
    return false;
  };
  EXPECT_TRUE(refused([&] { engine.generate("Once", options); }));
  EXPECT_TRUE(refused([&] { engine.perplexity(std::string(100'000, 'a')); }));
  flag = false;
  options.max_tokens = 4;
  EXPECT_FALSE(engine.generate("Once", options).text.empty()) << "it can be used on";
}

TEST(Engine, LogitsAndPerplexityAreSane) {
  Engine engine = Engine::open(kModel);
  const auto tokens = engine.encode(kText);
  EXPECT_EQ(engine.decode(tokens), kText);
  const auto logits = engine.logits(tokens);
  EXPECT_EQ(static_cast<int64_t>(logits.size()), engine.vocab_size());
  EXPECT_THROW(engine.logits({}), Error);
  const PerplexityResult result = engine.perplexity(kText, 32);
  EXPECT_GT(result.perplexity, 5);
  EXPECT_LT(result.perplexity, 500);
  EXPECT_GE(result.tokens, 16);
}

TEST(Engine, LogprobsAreThoseOfTheLogitsOfAllPositions) {
  EngineOptions cpu;
  cpu.device = "cpu";  // where logits do not depend on how many are computed together
  Engine engine = Engine::open(kModel, cpu);
  const std::vector<int32_t> tokens = engine.encode(kText);
  const auto vocab = static_cast<size_t>(engine.vocab_size());
  const std::vector<float> all = engine.all_logits(tokens);
  ASSERT_EQ(all.size(), tokens.size() * vocab);
  const std::vector<float> tail =
      engine.all_logits(tokens, static_cast<int64_t>(tokens.size()) - 2);
  EXPECT_TRUE(std::equal(tail.begin(), tail.end(), all.end() - 2 * static_cast<long>(vocab)));
  const std::vector<TokenPrediction> scores = engine.logprobs(tokens, 3);
  ASSERT_EQ(scores.size(), tokens.size() - 3);
  for (size_t i = 0; i < scores.size(); ++i) {
    const std::span<const float> row(all.data() + (i + 2) * vocab, vocab);
    double sum = 0;
    for (const float x : row)
      sum += std::exp(static_cast<double>(x));
    const float own = row[static_cast<size_t>(tokens[i + 3])];
    EXPECT_NEAR(scores[i].logprob, static_cast<double>(own) - std::log(sum), 1e-6);
    EXPECT_EQ(scores[i].best, own == *std::ranges::max_element(row));
  }
  EXPECT_THROW(engine.logprobs(tokens, 0), Error);
  EXPECT_THROW(engine.all_logits(tokens, static_cast<int64_t>(tokens.size())), Error);
  std::vector<int32_t> wrong = tokens;
  wrong.back() = static_cast<int32_t>(vocab);
  EXPECT_THROW(engine.logprobs(wrong), Error);
}

TEST(Engine, DivergesFromItselfByNothingAndFromItsCompressionByLittle) {
  Engine engine = Engine::open(kModel);
  EngineOptions options;
  options.compress.emplace();
  options.compress->type = "tq4";
  options.compress->fast = true;
  Engine coded = Engine::open(kModel, options);
  EXPECT_EQ(coded.type(), "tq4");
  EXPECT_LT(engine.kl_divergence(engine, kText, 32).mean, 1e-9);
  const DivergenceResult result = coded.kl_divergence(engine, kText, 32);
  EXPECT_GT(result.mean, 0.001);
  EXPECT_LT(result.mean, 0.5);
  EXPECT_GT(result.same_top, 0.5);
  EXPECT_DOUBLE_EQ(result.perplexity, coded.perplexity(kText, 32).perplexity);
  EXPECT_DOUBLE_EQ(result.reference_perplexity, engine.perplexity(kText, 32).perplexity);
}

TEST(Engine, PutsConversationsIntoTheModelsTemplate) {
  const Engine engine = Engine::open(kModel);
  ASSERT_TRUE(engine.has_chat_template());
  EXPECT_EQ(engine.chat_prompt(R"([{"role": "user", "content": "Hi"}])"),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(engine.chat_prompt(R"([{"role": "user", "content": "Hi"}])", false),
            "<|im_start|>user\nHi<|im_end|>\n");
  EXPECT_THROW(engine.chat_prompt("{"), Error);

  const auto folder =
      std::filesystem::temp_directory_path() / ("walsh_engine_chat_" + std::to_string(getpid()));
  std::filesystem::copy(kModel, folder, std::filesystem::copy_options::recursive);
  std::filesystem::remove(folder / "tokenizer_config.json");
  try {
    Engine::open(folder).chat_prompt("[]");
    ADD_FAILURE() << "there is no template";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
  }
  std::filesystem::remove_all(folder);
}

TEST(Engine, KeysAndValuesMayBeCoded) {
  EngineOptions options;
  options.device = "cpu";
  const double half = Engine::open(kModel, options).perplexity(kText, 56).perplexity;
  options.cache_keys = options.cache_values = "kt2";
  options.cache_window = 0;
  const double coded = Engine::open(kModel, options).perplexity(kText, 56).perplexity;
  EXPECT_NE(coded, half);
  EXPECT_NEAR(coded / half, 1, 0.5);
  options.cache_keys = "tq9";
  EXPECT_THROW(Engine::open(kModel, options), Error);
}

TEST(Quantizer, ShowsWhatIsInAFile) {
  CompressOptions compress;
  compress.type = "tq3";
  compress.fast = true;
  const std::string file = (std::filesystem::temp_directory_path() /
                            ("walsh_inspect_" + std::to_string(getpid()) + ".gguf"))
                               .string();
  const CompressReport report = quantize(kModel, file, compress, 2);
  const FileSummary summary = inspect(file, true);
  EXPECT_EQ(summary.bytes, report.file_bytes);
  EXPECT_DOUBLE_EQ(summary.bits_per_weight, report.bits_per_weight);
  EXPECT_NE(summary.recipe.find("tq3"), std::string::npos);
  const auto is_down = [](const TensorSummary& t) {
    return t.name == "model.layers.0.mlp.down_proj.weight";
  };
  const auto down = std::ranges::find_if(summary.tensors, is_down);
  ASSERT_NE(down, summary.tensors.end());
  EXPECT_EQ(down->type, "tq3");
  EXPECT_TRUE(down->linear);
  EXPECT_GT(down->nmse, 0.02);
  EXPECT_LT(down->nmse, 0.04);
  std::remove(file.c_str());
  EXPECT_THROW(inspect(kModel), Error);
}

TEST(Quantizer, TellsWhatIsWrong) {
  CompressOptions options;
  options.type = "tq5";
  EXPECT_THROW(quantize(kModel, "/dev/null/x", options), Error);
  options.type = "tq3";
  EXPECT_THROW(quantize("/nonexistent", "/tmp/x", options), Error);
  options.block = 33;
  try {
    quantize("/nonexistent", "/tmp/x", options);
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage) << "the options are checked before any file";
  }
  EXPECT_THROW(Engine::open("/nonexistent"), Error);
  options = {};
  options.bits_per_weight = 3;
  EngineOptions loading;
  loading.compress = options;
  EXPECT_THROW(Engine::open(kModel, loading), Error) << "types are not chosen while loading";
  options.recipe = "/nonexistent";
  EXPECT_THROW(quantize(kModel, "/dev/null/x", options), Error);
  const auto all = formats();
  EXPECT_TRUE(std::any_of(all.begin(), all.end(), [](const FormatSummary& f) {
    return f.name == "itq3_s" && std::abs(f.bits_per_weight - 3.125) < 1e-9;
  }));
}

}  // namespace
}  // namespace walsh
