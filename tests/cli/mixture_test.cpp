// Runs the command with models that have experts, latent attention and recurrent layers:
// calibration, allocation and quantizing while loading. Their tiny checkpoints get a tokenizer of
// letters.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "cli/command.h"

namespace walsh {
namespace {

using Json = nlohmann::json;

// Makes a byte-level BPE without merges, of the bytes that ASCII text has.
std::string letters() {
  Json vocab = {{"\u0120", 3}, {"\u010a", 4}};  // what stands for a space and a line feed
  for (char c = '!'; c <= '~'; ++c)
    vocab[std::string(1, c)] = 5 + c - '!';
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
  return Json{{"version", "1.0"},
              {"added_tokens", Json::array()},
              {"normalizer", nullptr},
              {"pre_tokenizer", byte_level},
              {"post_processor", nullptr},
              {"decoder", byte_level},
              {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}}
      .dump();
}

class MixtureCommand : public CommandTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    const std::string from = std::string(WALSH_TEST_DATA) + "/models/" + GetParam();
    std::filesystem::copy(from, folder());
    spill(folder() + "/tokenizer.json", letters());
    spill(file("text.txt"), slurp(text()).substr(0, 6000));
  }
  std::string folder() const { return file("tiny"); }

  std::string quantized(const std::string& name, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"quantize", folder(), file(name), "--effort", "fast"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult r = walsh(arguments);
    EXPECT_EQ(r.status, 0) << r.err;
    return file(name);
  }
  double divergence(const std::string& path, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"eval",        path,     "--text", file("text.txt"),
                                          "--chunks",    "4",      "--ctx",  "128",
                                          "--reference", folder(), "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult r = walsh(arguments);
    EXPECT_EQ(r.status, 0) << r.err;
    return r.status == 0 ? Json::parse(r.out)["kld"]["mean"].get<double>() : -1;
  }
};

TEST_P(MixtureCommand, CalibrationLowersTheDivergence) {
  const std::string plain = quantized("plain.gguf", {"--type", "tq3"});
  const std::string better =
      quantized("better.gguf",
                {"--type", "tq3", "--calibrate", file("text.txt"), "--calibrate-tokens", "4096"});
  EXPECT_GT(divergence(better), 0);
  EXPECT_LT(divergence(better), divergence(plain));
  const CommandResult r = walsh({"inspect", better, "--check", "--source", folder(), "--json"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(Json::parse(r.out)["suspicious"], 0);
}

class MixtureAllocation : public MixtureCommand {};

TEST_P(MixtureAllocation, KeepsItsBudgetAndGivesExpertsOfALayerOneFormat) {
  const std::string path =
      quantized("a.gguf", {"--bpw", "3.4", "--candidates", "tq2,tq3,tq4", "--allocate-tokens",
                           "512", "--allocate-evals", "2", "--save-recipe", file("r.json")});
  const Json about = Json::parse(slurp(file("r.json")))["about"]["allocation"];
  EXPECT_LE(about["allocated"]["bits_per_weight"], 3.4);
  EXPECT_GT(about["allocated"]["bits_per_weight"], 3.0);
  EXPECT_GT(divergence(path), 0);
  const CommandResult r = walsh({"inspect", path, "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  std::map<std::string, std::string> types;  // by the name without the number of the expert
  const Json inspected = Json::parse(r.out);
  for (const Json& tensor : inspected["tensors"]) {
    const std::string name = std::regex_replace(tensor["name"].get<std::string>(),
                                                std::regex("experts\\.[0-9]+"), "experts");
    const auto [known, fresh] = types.try_emplace(name, tensor["type"]);
    EXPECT_EQ(tensor["type"].get<std::string>(), known->second) << tensor["name"];
  }
}

TEST_P(MixtureCommand, QuantizingWhileLoadingGivesWhatTheFileGives) {
  const double loaded = divergence(folder(), {"--quantize", "tq4", "--effort", "fast"});
  EXPECT_DOUBLE_EQ(loaded, divergence(quantized("a.gguf", {"--type", "tq4"})));
  const double coded = divergence(folder(), {"--cache-type-k", "kt4", "--cache-type-v", "kt4"});
  EXPECT_GT(coded, 0);
  EXPECT_LT(coded, 0.1);
}

std::string model_name(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, MixtureCommand,
                         testing::Values("qwen3-moe-tiny", "qwen35-tiny", "qwen35-moe-tiny",
                                         "deepseek-v2-tiny", "deepseek-v3-straight-tiny",
                                         "llama4-tiny"),
                         model_name);
INSTANTIATE_TEST_SUITE_P(Models, MixtureAllocation,
                         testing::Values("qwen3-moe-tiny", "qwen35-tiny", "deepseek-v2-tiny"),
                         model_name);

}  // namespace
}  // namespace walsh
