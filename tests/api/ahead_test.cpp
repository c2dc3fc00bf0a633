// Tests texts whose tokens the model's own layer guesses, by the public interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "io/json.h"
#include "temporary_folder.h"
#include "walsh/batch.h"
#include "walsh/engine.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using testing::HasSubstr;

// Makes a tiny checkpoint with a token for each of the printable bytes.
class AheadEngine : public testing::Test {
 protected:
  AheadEngine() {
    for (const char* name : {"config.json", "model.safetensors"})
      std::filesystem::copy(std::string(WALSH_TEST_DATA) + "/ahead/qwen35/" + name,
                            folder_.file(name));
    Json tokens = Json::object();
    for (int id = 0; id < 96; ++id)
      tokens[id == 0 ? "\u0120" : std::string(1, static_cast<char>(' ' + id))] = id;
    const Json bytes = {{"type", "ByteLevel"},
                        {"add_prefix_space", false},
                        {"trim_offsets", true},
                        {"use_regex", true}};
    const Json model = {{"type", "BPE"}, {"vocab", tokens}, {"merges", Json::array()}};
    folder_.write("tokenizer.json", Json({{"version", "1.0"},
                                          {"added_tokens", Json::array()},
                                          {"normalizer", nullptr},
                                          {"pre_tokenizer", bytes},
                                          {"post_processor", nullptr},
                                          {"decoder", bytes},
                                          {"model", model}})
                                        .dump());
  }

  Engine open(const std::string& draft, const char* type = nullptr) const {
    EngineOptions options;
    options.device = "cpu";
    options.threads = 2;
    options.context = 128;
    options.draft = draft;
    options.batch.emplace();
    if (type != nullptr) {
      options.compress.emplace();
      options.compress->type = type;
    }
    return Engine::open(folder_.path(), options);
  }

  const test::TemporaryFolder folder_;
};

GenerationOptions wanted(float temperature) {
  GenerationOptions options;
  options.temperature = temperature;
  options.max_tokens = 40;
  options.seed = 5;
  options.ignore_eos = true;
  return options;
}

TEST_F(AheadEngine, GuessesAndChangesNoText) {
  for (const char* type : {static_cast<const char*>(nullptr), "tq4"}) {
    Engine plain = open("", type), ahead = open("mtp", type), two = open("mtp:2", type);
    TextSession session(ahead);
    TextBatch batch(ahead);
    int64_t right = 0;
    for (const float temperature : {0.0f, 0.6f}) {
      const GenerationResult expected = plain.generate("The river", wanted(temperature));
      for (const GenerationResult& result :
           {ahead.generate("The river", wanted(temperature)),
            session.generate("The river", wanted(temperature)),
            two.generate("The river", wanted(temperature)),
            batch.generate(std::vector<std::string>{"The river", "A"}, wanted(temperature))[0]}) {
        EXPECT_EQ(result.text, expected.text) << temperature;
        right += result.drafted_right;
      }
    }
    EXPECT_GT(right, 0);
  }
}

TEST_F(AheadEngine, IsRefusedByNameWhereThereIsNone) {
  const auto refused = [&](const std::string& path, const std::string& draft) {
    EngineOptions options;
    options.device = "cpu";
    options.draft = draft;
    try {
      Engine::open(path, options);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage);
      return std::string(e.what());
    }
    return std::string("not refused");
  };
  const std::string other = std::string(WALSH_SOURCE_DIR) + "/models/walsh-tiny-13m";
  EXPECT_THAT(refused(other, "mtp"), HasSubstr("no layer that predicts further tokens"));
  EXPECT_THAT(refused(folder_.path(), "mtp:9"), HasSubstr("expected mtp:1 to mtp:8"));
  EXPECT_THAT(refused(folder_.path(), "mtp:0"), HasSubstr("expected mtp:1 to mtp:8"));
}

}  // namespace
}  // namespace walsh
