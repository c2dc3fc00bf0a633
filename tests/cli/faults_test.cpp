// Tests how other programs and the system interfere with a running command: files that shrink,
// limits, outputs that are inputs.
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/command.h"
#include "limited_memory.h"

namespace walsh {
namespace {

class Faults : public CommandTest {
 protected:
  static std::string tiny() { return std::string(WALSH_TEST_DATA) + "/models/llama31-tiny"; }

  std::vector<std::string> temporaries() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(file("")))
      if (entry.path().extension() == ".walsh-tmp") found.push_back(entry.path());
    return found;
  }
  // Runs a command in the background until `ready`, a condition of the shell, becomes true; then
  // all weights of `folder` are cut and `then` is done.
  CommandResult cut_weights(const std::string& command, const std::string& ready,
                            const std::string& folder, const std::string& then) const {
    return shell(fmt::format(
        "ulimit -c 0; export CUDA_VISIBLE_DEVICES=; {} > {} 2> {} & pid=$!; n=0; "
        "until {} || [ $n = 2000 ]; do n=$((n+1)); sleep 0.05; done; "
        "for f in {}/*.safetensors; do : > $f; done; {}; wait $pid",
        command, quoted(file("stdout")), quoted(file("stderr")), ready, quoted(folder), then));
  }
  static void expect_one_line_about_the_file(const CommandResult& r) {
    EXPECT_EQ(r.status, 5) << r.err;
    const size_t line = r.err.find("walsh: error: ");
    ASSERT_NE(line, std::string::npos) << r.err;
    EXPECT_NE(r.err.find(".safetensors: cannot be read any more", line), std::string::npos)
        << r.err;
    EXPECT_EQ(r.err.find('\n', line), r.err.size() - 1) << r.err;
  }
};

TEST_F(Faults, WeightsThatAreCutWhileTheyAreUsedEndARun) {
  const std::string folder = copied_model(), go = quoted(file("go"));
  // The second line comes when the weights are gone.
  const CommandResult r = cut_weights(
      fmt::format(
          "(echo The city; until [ -f {} ]; do sleep 0.05; done; echo The city) | {} run {} "
          "-n 4 -t 2 --device cpu",
          go, quoted(WALSH_COMMAND), quoted(folder)),
      fmt::format("grep -qs tokens/s {}", quoted(file("stderr"))), folder, "touch " + go);
  expect_one_line_about_the_file(r);
}

// Freeing millions of JSON values needs memory, too, where no exception can leave.
TEST_F(Faults, MemoryThatRunsOutIsOneErrorWhereverItDoes) {
  if (test::kShadowMemory) GTEST_SKIP() << "sanitizers need more address space";
  const std::string folder = file("model");
  std::filesystem::copy(tiny(), folder);
  std::string values = "[0";
  for (int i = 0; i < 8'000'000; ++i)
    values += ",0";
  spill(folder + "/tokenizer.json", values + "]");
  for (const int kib : {200'000, 250'000, 275'000, 300'000, 400'000}) {
    const CommandResult r = walsh({"run", folder, "-p", "x", "-n", "1"},
                                  fmt::format("ulimit -c 0; ulimit -v {};", kib));
    EXPECT_TRUE(r.status == 4 || r.status == 3) << kib << ": " << r.status << " " << r.err;
    EXPECT_NE(r.err.find("walsh: error: "), std::string::npos) << r.err;
  }
}

TEST_F(Faults, WeightsThatAreCutWhileTheyAreQuantizedLeaveNothing) {
  const std::string folder = copied_model();
  const CommandResult r =
      cut_weights(fmt::format("{} quantize {} {} --type tc4 -t 1 --device cpu",
                              quoted(WALSH_COMMAND), quoted(folder), quoted(file("out.gguf"))),
                  fmt::format("grep -qs ' 2/56' {}", quoted(file("stderr"))), folder, ":");
  expect_one_line_about_the_file(r);
  EXPECT_EQ(temporaries(), std::vector<std::string>());
  EXPECT_FALSE(std::filesystem::exists(file("out.gguf")));
}

TEST_F(Faults, TheLimitOfAFilesSizeIsAnErrorLikeAFullDisk) {
  const CommandResult r =
      walsh({"quantize", model(), file("out.gguf"), "--type", "tq4", "--effort", "fast"},
            "ulimit -f 2000;");
  EXPECT_EQ(r.status, 5) << r.err;
  EXPECT_NE(r.err.find("walsh: error: " + file("out.gguf") + ": cannot "), std::string::npos)
      << r.err;
  EXPECT_EQ(temporaries(), std::vector<std::string>());
}

// The soft limit asks, the hard one ends.
TEST_F(Faults, TheLimitOfProcessorTimeLeavesNothingHalfWritten) {
  const CommandResult r =
      walsh({"quantize", model(), file("out.gguf"), "--type", "tc4"}, "ulimit -S -t 1;");
  EXPECT_EQ(r.status, 130) << r.err;
  EXPECT_TRUE(r.err.ends_with("walsh: error: stopped by the user\n")) << r.err;
  EXPECT_EQ(temporaries(), std::vector<std::string>());
}

TEST_F(Faults, NoOutputIsAnInput) {
  const std::string folder = file("tiny");
  std::filesystem::copy(tiny(), folder);
  std::filesystem::create_symlink(folder + "/model.safetensors", file("link"));
  const std::string weights = slurp(folder + "/model.safetensors");
  const auto refused = [&](const std::string& where, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"quantize", folder};
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_error(walsh(arguments), 2, where);
    EXPECT_TRUE(slurp(folder + "/model.safetensors") == weights);
  };
  refused("model.safetensors: would be written over",
          {folder + "/model.safetensors", "--type", "tq4"});
  refused("link: would be written over", {file("link"), "--type", "tq4"});
  refused("config.json: would be written over",
          {file("a"), "--type", "tq4", "--save-recipe", folder + "/config.json"});
  refused("model.safetensors: would be written over",
          {file("a"), "--bpw", "3.3", "--sensitivity", file("s"), "--save-recipe",
           folder + "/model.safetensors"});
  refused("a: is named as an output twice",
          {file("a"), "--type", "tq4", "--save-recipe", file("a")});
  refused("a: is named as an output twice",
          {file("a"), "--type", "tq4", "--output-format", "hf", "--save-recipe", file("./a")});
  refused("s: is named as an output twice",
          {file("s"), "--bpw", "3.3", "--sensitivity", file("s")});
  spill(file("text"), "some text");
  refused("text: would be written over",
          {file("text"), "--type", "tq4", "--calibrate", file("text")});
  refused("text: would be written over",
          {file("text"), "--bpw", "3.3", "--allocate-text", file("text")});
  spill(file("r"), R"({"walsh_recipe": 1, "type": "tq4"})");
  refused("r: would be written over", {file("r"), "--recipe", file("r")});
  EXPECT_EQ(slurp(file("text")), "some text");
}

// The search would take its time and write its stages to standard error.
TEST_F(Faults, OutputsAreTriedBeforeASearch) {
  for (const auto& more : {std::vector<std::string>{file("no/out.gguf")},
                           {file("out.gguf"), "--save-recipe", file("no/recipe.json")},
                           {file("out.gguf"), "--sensitivity", file("no/sensitivity.json")}}) {
    std::vector<std::string> arguments = {"quantize", tiny()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.insert(arguments.end(), {"--bpw", "3.3", "--candidates", "tq2,tq3"});
    expect_error(walsh(arguments), 5, "/no/");
  }
  EXPECT_EQ(temporaries(), std::vector<std::string>());
}

}  // namespace
}  // namespace walsh
