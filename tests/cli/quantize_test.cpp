#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "cli/command.h"
#include "io/gguf.h"

namespace walsh {
namespace {

class QuantizeCommand : public CommandTest {
 protected:
  // Returns what is in the test's folder, but for what the command said, and what a later run can
  // go on from.
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(file(".")))
      if (entry.path().extension() != ".walsh-resume") names.insert(entry.path().filename());
    names.erase("stdout");
    names.erase("stderr");
    return names;
  }
};

TEST_F(QuantizeCommand, WritesTheSameBytesWithAnyNumberOfThreads) {
  const std::string one = slurp(quantize("one.gguf", "tq3", {"-t", "1"}));
  const std::string three = slurp(quantize("three.gguf", "tq3", {"-t", "3"}));
  EXPECT_GT(one.size(), 1000000u);
  EXPECT_TRUE(one == three);
}

TEST_F(QuantizeCommand, WritesTheSameBytesWithAnyInstructionSet) {
  const std::string best = slurp(quantize("best.gguf", "itq3_s"));
  const std::string reference = slurp(quantize("ref.gguf", "itq3_s", {"--isa", "ref"}));
  EXPECT_TRUE(best == reference);
}

TEST_F(QuantizeCommand, PrintsALinePerTensorWithoutATerminal) {
  const CommandResult r =
      walsh({"quantize", model(), file("a.gguf"), "--type", "tq4", "--effort", "fast"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.err.find("[ 1/56] model.embed_tokens.weight"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("bf16 -> tq4  NMSE 0.00"), std::string::npos) << r.err;
  EXPECT_EQ(r.err.find('\r'), std::string::npos);
  EXPECT_NE(r.out.find("4.12"), std::string::npos) << r.out;
}

TEST_F(QuantizeCommand, NamesThatAreNoLongerTypesStandForTypesWithANote) {
  const auto dry_run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"quantize", model(), "--dry-run"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return walsh(arguments);
  };
  const CommandResult r =
      dry_run({"--type", "tc3:L12", "--override", "re:v_proj=tc4:L16", "--head-type", "tc3"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.err.find("note: 'tc3:L12' is read but no longer written: tc3"), std::string::npos)
      << r.err;
  EXPECT_NE(r.err.find("note: 'tc4:L16' is read but no longer written: tc4"), std::string::npos)
      << r.err;
  EXPECT_NE(r.out.find("-> tc3:h"), std::string::npos) << r.out;
  EXPECT_EQ(dry_run({"--type", "tc3"}).err.find("no longer"), std::string::npos);
  expect_error(dry_run({"--type", "tc5"}), 2, "tq4+2");
  const std::string recipe = file("old.json");
  std::ofstream(recipe) << R"({"walsh_recipe": 1, "type": "tc2.5:L14"})";
  const CommandResult old = dry_run({"--recipe", recipe});
  EXPECT_EQ(old.status, 0) << old.err;
  EXPECT_NE(old.err.find("note: 'tc2.5:L14' is read but no longer written"), std::string::npos)
      << old.err;
}

TEST_F(QuantizeCommand, NamesTensorsThatMissTheirBoundAtTheEnd) {
  const CommandResult r = walsh({"quantize", model(), file("a.gguf"), "--type", "tq3", "--rotation",
                                 "none", "--scale", "shape-gain", "--json"});
  EXPECT_EQ(r.status, 0) << r.err;
  const auto missed = nlohmann::json::parse(r.out)["missed_bounds"];
  ASSERT_FALSE(missed.empty());
  size_t at = r.err.find("[56/56]");
  for (const auto& tensor : missed) {
    const std::string line = "walsh: warning: " + tensor["tensor"].get<std::string>() + ": NMSE ";
    EXPECT_NE(at = r.err.find(line, at), std::string::npos) << line;
  }
  const CommandResult good =
      walsh({"quantize", model(), file("b.gguf"), "--type", "tq3", "--effort", "fast", "--json"});
  EXPECT_EQ(good.err.find("warning"), std::string::npos) << good.err;
  EXPECT_TRUE(nlohmann::json::parse(good.out)["missed_bounds"].empty());
}

TEST_F(QuantizeCommand, DryRunPredictsTheSizeAndWritesNothing) {
  const CommandResult predicted =
      walsh({"quantize", model(), file("a.gguf"), "--type", "tq3", "--dry-run", "--json"});
  ASSERT_EQ(predicted.status, 0) << predicted.err;
  EXPECT_FALSE(std::filesystem::exists(file("a.gguf")));
  const auto json = nlohmann::json::parse(predicted.out);
  EXPECT_EQ(json["bytes"], std::filesystem::file_size(quantize("b.gguf", "tq3")));
  EXPECT_TRUE(json["nmse"].is_null());
}

TEST_F(QuantizeCommand, ADryRunIsOneScreenAndAllOfItOnRequest) {
  const auto lines = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"quantize", model(), "--type", "tq3", "--dry-run"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult r = walsh(arguments);
    EXPECT_EQ(r.status, 0) << r.err;
    return r.out;
  };
  const std::string brief = lines({}), all = lines({"--verbose"});
  EXPECT_LE(std::count(brief.begin(), brief.end(), '\n'), 24) << brief;
  EXPECT_NE(brief.find("model.layers.*.mlp.down_proj.weight"), std::string::npos) << brief;
  EXPECT_NE(brief.find("bf16 -> tq3"), std::string::npos) << brief;
  EXPECT_NE(all.find("model.layers.5.mlp.down_proj.weight"), std::string::npos) << all;
  EXPECT_EQ(nlohmann::json::parse(lines({"--json"}))["tensors"].size(), 56u);
}

TEST_F(QuantizeCommand, WithoutATypeItTellsWhichFitAndWhatToType) {
  const CommandResult r = walsh({"quantize", model()});
  ASSERT_EQ(r.status, 0) << r.err;
  for (const char* part : {"tq4", "tc3", "divergence", "Next: walsh quantize ", "-tq4.gguf --type"})
    EXPECT_NE(r.out.find(part), std::string::npos) << part << r.out;
  const CommandResult json = walsh({"quantize", model(), "--json"});
  const auto told = nlohmann::json::parse(json.out);
  const std::vector<std::string> in_advance = {"quantize",  model(),  file("b.gguf"),
                                               "--dry-run", "--json", "--type"};
  for (const auto& type : told["types"]) {
    std::vector<std::string> dry_run = in_advance;
    dry_run.push_back(type["type"].get<std::string>());
    const auto predicted = nlohmann::json::parse(walsh(dry_run).out);
    for (const char* key : {"bytes", "bpw"})
      EXPECT_EQ(type[key], predicted[key]) << type;
  }
  EXPECT_EQ(told["best"].get<std::string>(), "tq4");
  expect_error(walsh({"quantize", model(), "--effort", "fast"}), 2, "--effort");
}

TEST_F(QuantizeCommand, AResumedRunSaysFromWhere) {
  const std::string line = fmt::format(
      "{} quantize {} {} --type tc4 --effort fast --device cpu -t 1 < /dev/null > {} 2> {} & "
      "pid=$!; n=0; until grep -q '20/56' {} || [ $n = 3000 ]; do n=$((n+1)); sleep 0.02; done; "
      "kill -INT $pid; wait $pid",
      quoted(WALSH_COMMAND), quoted(model()), quoted(file("a.gguf")), quoted(file("stdout")),
      quoted(file("stderr")), quoted(file("stderr")));
  ASSERT_EQ(shell(line).status, 130);
  const CommandResult r = walsh(
      {"quantize", model(), file("a.gguf"), "--type", "tc4:h", "--effort", "fast", "-t", "1"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.err.find("an earlier run was interrupted"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("encoding continues with model.layers."), std::string::npos) << r.err;
}

TEST_F(QuantizeCommand, TheFirstMatchingRuleDecides) {
  const std::string path = quantize("a.gguf", "tq3",
                                    {"--ignore", "re:layers\\.0\\..*down", "--override",
                                     "re:down_proj=tq4", "--override", "re:layers\\.0=q8_0"});
  const CommandResult r = walsh({"inspect", path, "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  std::map<std::string, std::string> types;
  const auto json = nlohmann::json::parse(r.out);
  for (const auto& tensor : json["tensors"])
    types[tensor["name"]] = tensor["type"];
  EXPECT_EQ(types["model.layers.0.mlp.down_proj.weight"], "bf16");
  EXPECT_EQ(types["model.layers.1.mlp.down_proj.weight"], "tq4");
  EXPECT_EQ(types["model.layers.0.mlp.up_proj.weight"], "q8_0");
  EXPECT_EQ(types["model.layers.1.mlp.up_proj.weight"], "tq3");
  EXPECT_EQ(types["model.embed_tokens.weight"], "q8_0");
}

TEST_F(QuantizeCommand, EmbeddingAndHeadTakeEightBitsUnlessTheyAreToStay) {
  const auto types = [&](const std::string& folder, std::vector<std::string> more) {
    more.insert(more.begin(), {"quantize", folder, file("a.gguf"), "--dry-run", "--json"});
    const CommandResult r = walsh(more);
    EXPECT_EQ(r.status, 0) << r.err;
    std::map<std::string, std::string> result;
    const auto json = nlohmann::json::parse(r.out);
    for (const auto& tensor : json["tensors"])
      result[tensor["name"]] = tensor["type"];
    return result;
  };
  const std::string untied = WALSH_TEST_DATA "/models/llama2-bias-tiny";
  const std::string embedding = "model.embed_tokens.weight", head = "lm_head.weight";
  auto by_default = types(untied, {"--type", "tq4"});
  EXPECT_EQ(by_default[embedding], "q8_0");
  EXPECT_EQ(by_default[head], "q8_0");
  const std::string source = types(untied, {"--type", "bf16"})[embedding];
  EXPECT_NE(source, "q8_0") << "layers that are not coded";
  auto ignored = types(untied, {"--type", "tq4", "--ignore", embedding});
  EXPECT_EQ(ignored[embedding], source);
  EXPECT_EQ(ignored[head], "q8_0");
  auto chosen = types(untied, {"--type", "tq4", "--embed-type", "bf16", "--head-type", "tq4+4"});
  EXPECT_EQ(chosen[embedding], "bf16");
  EXPECT_EQ(chosen[head], "tq4+4");
  auto folder = types(untied, {"--type", "tq4", "--output-format", "hf"});
  EXPECT_EQ(folder[embedding], source);
  EXPECT_EQ(folder[head], source);
}

TEST_F(QuantizeCommand, AFolderKeepsItsEmbeddingAndSaysSo) {
  const CommandResult r = walsh({"quantize", model(), file("folder"), "--type", "tq4", "--effort",
                                 "fast", "--output-format", "hf"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.err.find("a folder keeps the embedding as it is"), std::string::npos) << r.err;
  const CommandResult coded = walsh({"quantize", model(), file("b"), "--type", "tq4",
                                     "--embed-type", "q8_0", "--output-format", "hf"});
  expect_error(coded, 2, "--embed-type");
}

TEST_F(QuantizeCommand, RefusesWrongTypesAndCombinations) {
  const std::string out = file("a.gguf");
  expect_error(walsh({"quantize", model(), out, "--type", "tq9"}), 2, "tq9");
  expect_error(walsh({"quantize", model(), out}), 2, "--type");
  expect_error(walsh({"quantize", model(), out, "--type", "tq3", "--block", "48"}), 2, "--block");
  expect_error(walsh({"quantize", model(), out, "--type", "tq3", "--override", "x"}), 2,
               "--override");
  expect_error(walsh({"quantize", model(), out, "--type", "tq3", "--ignore", "re:("}), 2,
               "--ignore");
  expect_error(walsh({"quantize", model(), out, "--type", "tq3", "--ignore", "nothing"}), 2,
               "nothing");
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(QuantizeCommand, RefusesAFileThatIsQuantizedAlready) {
  const std::string path = quantize("a.gguf", "tq3");
  expect_error(walsh({"quantize", path, file("b.gguf"), "--type", "tq3"}), 2, "a.gguf");
}

TEST_F(QuantizeCommand, RefusesOutputsThatCannotBeWritten) {
  std::filesystem::create_directory(file("folder"));
  expect_error(walsh({"quantize", model(), file("folder"), "--type", "tq3"}), 2, "folder");
  expect_error(walsh({"quantize", model(), file("no/such/a.gguf"), "--type", "tq3"}), 5, "no/such");
}

TEST_F(QuantizeCommand, LeavesNothingBehindWhenTheDiskIsFull) {
  // 4,000 blocks of 512 or 1,024 bytes are less than the file needs.
  const CommandResult r = walsh({"quantize", model(), file("a.gguf"), "--type", "tq3"},
                                "trap '' XFSZ; ulimit -f 4000;");
  EXPECT_EQ(r.status, 5) << r.err;
  EXPECT_NE(r.err.find("walsh: error: "), std::string::npos) << r.err;
  EXPECT_EQ(files(), std::set<std::string>());
}

// It holds however far the command came: a signal may also be too early or too late.
TEST_F(QuantizeCommand, LeavesNothingHalfWrittenWhenItIsEnded) {
  const std::set<std::string> whole = {"a.gguf"};
  for (const char* signal : {"INT", "TERM", "HUP"}) {
    const CommandResult r =
        walsh({"quantize", model(), file("a.gguf"), "--type", "tc4:h"},
              std::string("timeout --preserve-status --signal=") + signal + " 1");
    EXPECT_TRUE(files() == whole || (files().empty() && r.status != 0)) << signal << r.err;
    std::filesystem::remove(file("a.gguf"));
  }
  // Its output has no reader any more.
  walsh({"quantize", model(), file("a.gguf"), "--type", "tc4:h", "--effort", "fast"}, "",
        "2>&1 < /dev/null | head -n 3");
  EXPECT_TRUE(files() == whole || files().empty());
}

TEST_F(QuantizeCommand, SummarizesAPathThatIsNotUtf8) {
  const CommandResult r = walsh(
      {"quantize", model(), file("\xff.gguf"), "--type", "tq2", "--effort", "fast", "--json"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("\\ufffd.gguf"), std::string::npos) << r.out;
}

TEST_F(QuantizeCommand, NamesAModelInUtf8WhateverItsFolderIsCalled) {
  const CommandResult r = walsh({"quantize", copied_model("m\xff\x1b[1m"), file("a.gguf"), "--type",
                                 "tq2", "--effort", "fast"});
  ASSERT_EQ(r.status, 0) << r.err;
  const std::string bytes = slurp(file("a.gguf"));
  const GgufContent content = parse_gguf(std::as_bytes(std::span(bytes)), "a.gguf");
  EXPECT_EQ(content.get("general.name", "a.gguf").as_text("a.gguf"), "m\\xff\\x1b[1m");
}

// llama.cpp would take a llama's tensors for its own and refuse them by an unknown type's number.
TEST_F(QuantizeCommand, AFileSaysThatItsArchitectureIsWalsh) {
  const std::string path = quantize("a.gguf", "tq3"), bytes = slurp(path);
  const GgufContent content = parse_gguf(std::as_bytes(std::span(bytes)), path);
  EXPECT_EQ(content.get("general.architecture", path).as_text(path), "walsh");
  EXPECT_EQ(content.get("walsh.family", path).as_text(path), "llama");
}

TEST_F(QuantizeCommand, KeepsTheOldFileWhenItFails) {
  spill(file("a.gguf"), "old");
  const CommandResult r = walsh({"quantize", model(), file("a.gguf"), "--type", "tq3"},
                                "trap '' XFSZ; ulimit -f 4000;");
  EXPECT_EQ(r.status, 5) << r.err;
  EXPECT_EQ(slurp(file("a.gguf")), "old");
}

TEST_F(QuantizeCommand, NoModelIsWrittenToStandardOutput) {
  const CommandResult result = walsh({"quantize", model(), "-", "--type", "tq4"});
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("./- names a file"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace walsh
