#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace walsh {
namespace {

class AllocateCommand : public CommandTest {
 protected:
  static std::string tiny() { return std::string(WALSH_TEST_DATA) + "/models/llama31-tiny"; }

  // Runs `quantize` on a model of 120 thousand weights with formats that are encoded in an instant.
  CommandResult allocate(const std::string& out, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"quantize",
                                          tiny(),
                                          file(out),
                                          "--candidates",
                                          "tq2,tq3,tq4",
                                          "--allocate-tokens",
                                          "512",
                                          "--allocate-evals",
                                          "3"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return walsh(arguments);
  }
  // Sensitivities of tiny() are none of the folder `another`.
  void expect_other_model(const std::string& kept) const {
    const CommandResult r =
        walsh({"quantize", file("another"), file("c.gguf"), "--bpw", "3.3", "--candidates",
               "tq2,tq3,tq4", "--allocate-tokens", "512", "--sensitivity", kept});
    EXPECT_EQ(r.status, 3);
    EXPECT_NE(r.err.find("other conditions"), std::string::npos) << r.err;
  }
};

TEST_F(AllocateCommand, ChoosesTellsAndWrites) {
  const CommandResult r = allocate("a.gguf", {"--bpw", "3.3", "--save-recipe", file("r.json")});
  ASSERT_EQ(r.status, 0) << r.err;
  for (const char* part : {"alpha", "model.layers.2.mlp.down_proj.weight", "uniform", "equal bits",
                           "allocated", "verified", "written by the model itself"})
    EXPECT_NE(r.out.find(part), std::string::npos) << part << "\n" << r.out;
  EXPECT_NE(r.err.find("the allocation takes about"), std::string::npos) << r.err;
  EXPECT_LT(r.err.find("the allocation takes about"), r.err.find("writing text")) << r.err;
  EXPECT_NE(r.err.find("measuring sensitivity"), std::string::npos) << r.err;
  const auto recipe = nlohmann::json::parse(slurp(file("r.json")));
  EXPECT_EQ(recipe["walsh_recipe"], 1);
  const auto about = recipe["about"]["allocation"];
  EXPECT_EQ(about["tensors"].size(), 21u);
  EXPECT_LE(about["allocated"]["bits_per_weight"], 3.3);
  EXPECT_NEAR(about["equal_bits"]["bits_per_weight"].get<double>(),
              about["allocated"]["bits_per_weight"].get<double>(), 1e-9);

  const CommandResult inspected = walsh({"inspect", file("a.gguf"), "--json"});
  ASSERT_EQ(inspected.status, 0) << inspected.err;
  std::map<std::string, std::string> types;
  const auto listed = nlohmann::json::parse(inspected.out);
  for (const auto& tensor : listed["tensors"])
    types[tensor["name"]] = tensor["type"];
  for (const auto& tensor : about["tensors"])
    EXPECT_EQ(tensor["type"].get<std::string>(), types[tensor["tensor"]]) << tensor["tensor"];
}

TEST_F(AllocateCommand, ASavedRecipeGivesTheSameFile) {
  ASSERT_EQ(allocate("a.gguf", {"--bpw", "3.3", "--save-recipe", file("r.json")}).status, 0);
  const CommandResult r = walsh({"quantize", tiny(), file("b.gguf"), "--recipe", file("r.json")});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(slurp(file("a.gguf")) == slurp(file("b.gguf")));
}

TEST_F(AllocateCommand, AnyNumberOfThreadsFindsTheSame) {
  ASSERT_EQ(allocate("a.gguf", {"--bpw", "3.3", "-t", "1"}).status, 0);
  ASSERT_EQ(allocate("b.gguf", {"--bpw", "3.3", "-t", "3"}).status, 0);
  EXPECT_TRUE(slurp(file("a.gguf")) == slurp(file("b.gguf")));
}

TEST_F(AllocateCommand, TheSizeHoldsForTheWholeFile) {
  const CommandResult r = allocate("a.gguf", {"--size", "0.05859375 MiB"});  // 60 KiB
  ASSERT_EQ(r.status, 0) << r.err;
  const auto bytes = std::filesystem::file_size(file("a.gguf"));
  EXPECT_LE(bytes, 60u * 1024);
  EXPECT_GT(bytes, 52u * 1024);
  expect_error(allocate("b.gguf", {"--size", "1KiB"}), 4, "1024");
  expect_error(allocate("b.gguf", {"--size", "20KiB"}), 4, "narrowest");
}

TEST_F(AllocateCommand, MeasuredSensitivitiesAreUsedAgain) {
  const std::string kept = file("s.json");
  ASSERT_EQ(allocate("a.gguf", {"--bpw", "3.3", "--sensitivity", kept}).status, 0);
  const CommandResult again = allocate("b.gguf", {"--bpw", "3.3", "--sensitivity", kept});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(again.err.find("measuring sensitivity"), std::string::npos) << again.err;
  EXPECT_TRUE(slurp(file("a.gguf")) == slurp(file("b.gguf")));
  const CommandResult other =
      allocate("c.gguf", {"--bpw", "3.3", "--sensitivity", kept, "--rotation-seed", "7"});
  EXPECT_EQ(other.status, 3);
  EXPECT_NE(other.err.find("other conditions"), std::string::npos) << other.err;
  std::filesystem::copy(tiny(), file("another"));
  std::string weights = slurp(file("another/model.safetensors"));
  weights.back() = static_cast<char>(weights.back() ^ 1);
  spill(file("another/model.safetensors"), weights);
  expect_other_model(kept);
  // The weights are as they were, but read by other rules.
  spill(file("another/model.safetensors"), slurp(tiny() + "/model.safetensors"));
  spill(file("another/config.json"), slurp(file("another/config.json")) + "\n");
  expect_other_model(kept);
  spill(kept, R"({"walsh_sensitivity": 1, "conditions": "", "tensors": [)");
  EXPECT_EQ(allocate("d.gguf", {"--bpw", "3.3", "--sensitivity", kept}).status, 3);
}

// Measuring writes its stages to standard error, where one line is expected.
TEST_F(AllocateCommand, KnownSensitivitiesAreReadBeforeAnythingIsMeasured) {
  const std::string kept = file("s.json");
  const auto refused = [&](const std::string& content, const std::string& reason) {
    spill(kept, content);
    expect_error(allocate("a.gguf", {"--bpw", "3.3", "--sensitivity", kept}), 3, reason);
    EXPECT_EQ(slurp(kept), content);
  };
  refused("no JSON", "s.json");
  refused(R"({"walsh_sensitivity": 1, "conditions": "", "tensors": [{}]})", "s.json");
  refused(R"({"walsh_sensitivity": 1, "conditions": "", "tensors": []})", "other conditions");
  expect_error(allocate("a.gguf", {"--bpw", "3.3", "--sensitivity", tiny()}), 3, "is a folder");
}

TEST_F(AllocateCommand, SensitivitiesKnowTheCalibrationTextByItsContent) {
  const std::string kept = file("s.json"), another = file("another");
  std::filesystem::copy(tiny(), another);
  spill(another + "/tokenizer.json",
        R"({"version": "1.0", "added_tokens": [], "normalizer": null, "post_processor": null,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2}, "merges": []}})");
  std::string words;
  for (int i = 0; i < 600; ++i)
    words += static_cast<char>('a' + (i * i / 3) % 3);
  spill(file("one.txt"), words);
  spill(file("same.txt"), words);
  const auto run = [&](const std::string& name) {
    return walsh({"quantize", another, file("a.gguf"), "--bpw", "3.3", "--candidates", "tq2,tq3",
                  "--allocate-tokens", "512", "--allocate-evals", "0", "--sensitivity", kept,
                  "--calibrate", file(name), "--calibrate-tokens", "512"});
  };
  ASSERT_EQ(run("one.txt").status, 0) << run("one.txt").err;
  const CommandResult same = run("same.txt");
  EXPECT_EQ(same.status, 0) << same.err;
  EXPECT_EQ(same.err.find("measuring sensitivity"), std::string::npos) << same.err;
  spill(file("one.txt"), words + "abc");
  const CommandResult other = run("one.txt");
  EXPECT_EQ(other.status, 3);
  EXPECT_NE(other.err.find("other conditions"), std::string::npos) << other.err;
}

TEST_F(AllocateCommand, RecipesWrittenByHandWorkForLoadingToo) {
  spill(file("r.json"), R"({"walsh_recipe": 1, "type": "tq3", "effort": "fast",
                            "rules": [{"tensor": "re:v_proj", "type": "tq4"}]})");
  const CommandResult r = walsh(
      {"eval", model(), "--recipe", file("r.json"), "--text", text(), "--chunks", "1", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const double bits = nlohmann::json::parse(r.out)["bpw"];
  EXPECT_GT(bits, 3.126);
  EXPECT_LT(bits, 3.3);
}

TEST_F(AllocateCommand, RefusesWrongCombinations) {
  const std::string out = file("a.gguf");
  spill(file("r.json"), R"({"walsh_recipe": 1, "type": "tq3"})");
  const auto refused = [&](const std::vector<std::string>& more, int status,
                           const std::string& where) {
    std::vector<std::string> arguments = {"quantize", tiny(), out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_error(walsh(arguments), status, where);
  };
  refused({"--bpw", "3", "--type", "tq3"}, 2, "--bpw");
  refused({"--bpw", "3", "--recipe", file("r.json")}, 2, "--bpw");
  refused({"--bpw", "3", "--size", "1MiB"}, 2, "--bpw");
  for (const char* bits : {"99", "0", "-3", "nan", "inf"})
    refused({"--bpw", bits}, 2, "--bpw");
  for (const char* size : {"0", "-5", "-1GiB", "nan", "1e30", "3GiBs", "GiB"})
    refused({"--size", size}, 2, "--size");
  refused({"--bpw", "0", "--type", "tq3"}, 2, "--bpw");
  refused({"--bpw", "3", "--candidates", "tq3,q8_0"}, 2, "--candidates");
  refused({"--bpw", "3", "--candidates", "tq9"}, 2, "tq9");
  refused({"--type", "tq3", "--candidates", "tq2"}, 2, "--candidates");
  refused({"--recipe", file("r.json"), "--type", "tq3"}, 2, "--type");
  refused({"--recipe", file("r.json"), "--seed", "1"}, 2, "--seed");
  refused({"--recipe", file("none.json")}, 5, "none.json");
  spill(file("r.json"), R"({"walsh_recipe": 1, "type": "tq3", "rules": [)"
                        R"({"tensor": "model.layers.77.up", "type": "tq4"}]})");
  refused({"--recipe", file("r.json")}, 2, "model.layers.77.up");
  spill(file("r.json"), R"({"walsh_recipe": 1, "type": "tq3", "rulez": []})");
  refused({"--recipe", file("r.json")}, 3, "rulez");
  EXPECT_FALSE(std::filesystem::exists(out));
}

}  // namespace
}  // namespace walsh
