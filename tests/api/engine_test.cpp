// The public API on the embedded model.
#include "walsh/engine.h"

#include <gtest/gtest.h>

#include <unistd.h>
#include <algorithm>
#include <atomic>
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

TEST(Engine, NothingComesAfterTheCallbackHasSaidStop) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("walsh_engine_stop_" + std::to_string(getpid()));
  std::filesystem::copy(kModel, folder, std::filesystem::copy_options::recursive);
  // Greedy decoding goes on with " a", which is a space and a third of a character now: the rest
  // waits for more when the text ends.
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
