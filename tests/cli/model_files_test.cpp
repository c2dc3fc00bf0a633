// Tests how the commands treat the small files beside the weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace walsh {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

class ModelFiles : public CommandTest {
 protected:
  // Sets keys of a JSON file of a model folder; null removes them.
  static void set(const std::string& path, const Json& keys) {
    Json json = Json::parse(slurp(path));
    json.merge_patch(keys);
    spill(path, json.dump());
  }
  CommandResult run(const std::string& folder, const std::vector<std::string>& more = {},
                    const std::string& tokens = "16") const {
    std::vector<std::string> arguments = {"run", folder, "--raw", "-p", "The city of London is",
                                          "-n",  tokens, "-q"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return walsh(arguments);
  }
  CommandResult eval(const std::string& folder) const {
    return walsh({"eval", folder, "--text", text(), "--chunks", "1", "--ctx", "64", "--json"});
  }
  static double perplexity(const CommandResult& r) {
    EXPECT_EQ(r.status, 0) << r.err;
    return Json::parse(r.out)["ppl"];
  }
};

TEST_F(ModelFiles, NoSamplingMeansTheBestTokenUnlessATemperatureIsGiven) {
  const std::string folder = copied_model();
  const std::string greedy = run(folder, {"--temp", "0"}).out;
  spill(folder + "/generation_config.json", R"({"do_sample": false, "temperature": 0.9})");
  EXPECT_EQ(run(folder).out, greedy);
  const std::vector<std::string> sampled = {"--temp", "3",       "--top-k", "0",      "--top-p",
                                            "1",      "--min-p", "0",       "--seed", "1"};
  EXPECT_NE(run(folder, sampled).out, greedy);
}

TEST_F(ModelFiles, ValuesOfConfigJsonCountWhereThereIsNoGenerationConfig) {
  const std::string folder = copied_model();
  std::filesystem::remove(folder + "/generation_config.json");
  set(folder + "/config.json", {{"temperature", 0.0}});
  EXPECT_EQ(run(folder).out, run(model(), {"--temp", "0"}).out);
  set(folder + "/config.json", {{"top_p", 7}});
  expect_error(run(folder), 3, "config.json");
}

TEST_F(ModelFiles, AFlagReplacesAValueThatIsOffOrBad) {
  const std::string folder = copied_model(), config = folder + "/generation_config.json";
  spill(config, R"({"top_k": -1})");
  EXPECT_EQ(run(folder).status, 0);
  EXPECT_EQ(run(folder, {"--top-k", "5"}).status, 0);
  spill(config, R"({"top_k": -7})");
  EXPECT_EQ(run(folder, {"--top-k", "5"}).status, 0);
  const CommandResult refused = run(folder);
  expect_error(refused, 3, "generation_config.json");
  EXPECT_THAT(refused.err, HasSubstr("top_k"));
}

TEST_F(ModelFiles, AnEndOutsideTheVocabularyMattersToGeneratedTextAlone) {
  const std::string folder = copied_model();
  spill(folder + "/generation_config.json", R"({"eos_token_id": 90000})");
  expect_error(run(folder), 3, "generation_config.json");
  EXPECT_EQ(run(folder, {"--ignore-eos"}).status, 0);
  EXPECT_EQ(perplexity(eval(folder)), perplexity(eval(model())));
  std::filesystem::remove(folder + "/generation_config.json");
  set(folder + "/config.json", {{"eos_token_id", 90000}});
  expect_error(run(folder), 3, "config.json");
  EXPECT_EQ(eval(folder).status, 0);
}

TEST_F(ModelFiles, ThePenaltyReachesOverAllTokensUnlessTold) {
  const auto text_with = [&](const std::string& last_n) {
    std::vector<std::string> flags = {"--temp", "0", "--repeat-penalty", "30"};
    if (!last_n.empty()) flags.insert(flags.end(), {"--repeat-last-n", last_n});
    const CommandResult r = run(model(), flags, "120");
    EXPECT_EQ(r.status, 0) << r.err;
    return r.out;
  };
  const std::string all = text_with("");
  EXPECT_EQ(all, text_with("-1"));
  EXPECT_EQ(all, text_with("4096"));
  EXPECT_NE(all, text_with("64")) << "what it was limited to before";
  EXPECT_EQ(text_with("0"), run(model(), {"--temp", "0"}, "120").out);
  expect_error(run(model(), {"--repeat-last-n", "-2"}), 2, "repeat_last_n");
}

TEST_F(ModelFiles, FlagsOfTheTokenizerDecideAboutBosAlsoInAFile) {
  const std::string folder = copied_model();
  const auto prompt_tokens = [&](const std::string& path) {
    const CommandResult r = walsh({"run", path, "--raw", "-p", "The city", "-n", "0"});
    EXPECT_EQ(r.status, 0) << r.err;
    const std::string mark = "prompt ";
    return std::stoi(r.err.substr(r.err.find(mark) + mark.size()));
  };
  const int with_bos = prompt_tokens(folder);
  set(folder + "/tokenizer_config.json",
      {{"tokenizer_class", "LlamaTokenizerFast"}, {"add_bos_token", false}});
  EXPECT_EQ(prompt_tokens(folder), with_bos - 1);
  const CommandResult written =
      walsh({"quantize", folder, file("a.gguf"), "--type", "tq4", "--effort", "fast", "--json"});
  EXPECT_EQ(written.status, 0) << written.err;
  EXPECT_EQ(prompt_tokens(file("a.gguf")), with_bos - 1);
  set(folder + "/tokenizer_config.json", {{"add_bos_token", true}, {"add_eos_token", true}});
  EXPECT_EQ(prompt_tokens(folder), with_bos + 1);
}

// The windows of a tokenizer that adds no BOS begin with their own tokens, as if there were none.
TEST_F(ModelFiles, WindowsBeginWithBosOnlyIfTheTokenizerAddsIt) {
  const std::string folder = copied_model();
  const double with_bos = perplexity(eval(folder));
  const std::string config = folder + "/tokenizer_config.json";
  set(config, {{"tokenizer_class", "LlamaTokenizerFast"}, {"add_bos_token", false}});
  const double without = perplexity(eval(folder));
  EXPECT_NE(without, with_bos);
  set(config, {{"bos_token", nullptr}});
  EXPECT_EQ(perplexity(eval(folder)), without);
  set(config, {{"bos_token", "<|begin_of_text|>"}, {"add_bos_token", true}});
  EXPECT_EQ(perplexity(eval(folder)), with_bos);
}

TEST_F(ModelFiles, WithoutATokenizerItIsSaidWhatIsMissingAndWhatWorks) {
  const std::string folder = copied_model(), out = file("a.gguf");
  std::filesystem::remove(folder + "/tokenizer.json");
  const std::string missing = "there is no tokenizer.json", works = "inspected and measured";
  for (const char* command : {"run", "serve", "eval"}) {
    std::vector<std::string> arguments = {command, folder};
    if (command == std::string("eval")) arguments.insert(arguments.end(), {"--text", text()});
    const CommandResult r = walsh(arguments);
    expect_error(r, 3, folder + ": " + missing + ": ");
    EXPECT_THAT(r.err, HasSubstr(works));
  }
  const CommandResult r = walsh({"quantize", folder, out, "--type", "tq3"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_THAT(r.err, HasSubstr("note: " + folder + ": " + missing + ": "));
  EXPECT_EQ(walsh({"inspect", out}).status, 0);
  EXPECT_EQ(walsh({"bench", out, "-p", "8", "-n", "1", "-r", "1", "--device", "cpu"}).status, 0);
  expect_error(walsh({"run", out, "-p", "a"}), 3, out + ": the file holds no tokenizer: ");
  spill(folder + "/tokenizer.model", "");
  expect_error(walsh({"run", folder, "-p", "a"}), 3, missing + ", only tokenizer.model (AutoTok");
}

TEST_F(ModelFiles, ANoteTellsOfAHeadThatTheConfigDoesNotKnow) {
  const std::string folder = file("untied");
  std::filesystem::copy(WALSH_TEST_DATA "/models/llama2-bias-tiny", folder);
  const std::vector<std::string> command = {"quantize", folder, file("a.gguf"),
                                            "--type",   "tq4",  "--dry-run"};
  EXPECT_THAT(walsh(command).err, Not(HasSubstr("head")));
  set(folder + "/config.json", {{"tie_word_embeddings", true}});
  const CommandResult r = walsh(command);
  EXPECT_EQ(r.status, 0);
  EXPECT_THAT(r.err, HasSubstr("walsh: note: "));
  EXPECT_THAT(r.err, HasSubstr("lm_head.weight"));
  EXPECT_THAT(r.out, HasSubstr("lm_head.weight"));
}

}  // namespace
}  // namespace walsh
