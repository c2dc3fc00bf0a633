#include <gtest/gtest.h>

#include "cli/command.h"

namespace walsh {
namespace {

class RunCommand : public CommandTest {
 protected:
  std::string run(const std::vector<std::string>& more, const std::string& after = "< /dev/null") {
    std::vector<std::string> arguments = {"run", model(), "--raw", "-n", "24", "--quiet"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult r = walsh(arguments, "", after);
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.err, "");
    return r.out;
  }
};

TEST_F(RunCommand, GreedyTextIsTheSameEveryTime) {
  const std::string text = run({"-p", "The city of London is", "--temp", "0"});
  EXPECT_TRUE(text.starts_with("The city of London is a great city in the world.")) << text;
  EXPECT_EQ(text, run({"-p", "The city of London is", "--temp", "0", "-t", "3", "--no-stream"}));
}

TEST_F(RunCommand, ASeedFixesTheSample) {
  const std::string one = run({"-p", "The", "--seed", "1"});
  EXPECT_EQ(one, run({"-p", "The", "--seed", "1"}));
  EXPECT_NE(one, run({"-p", "The", "--seed", "2"}));
}

TEST_F(RunCommand, ANegativeSeedIsRefusedExceptThatOfADrawnOne) {
  const CommandResult drawn = walsh({"run", model(), "-p", "a", "-n", "2", "--seed", "-1"});
  EXPECT_EQ(drawn.status, 0) << drawn.err;
  expect_error(walsh({"run", model(), "-p", "a", "--seed", "-5"}), 2, "command line");
}

TEST_F(RunCommand, AFileWithoutRulesIsNoFreeText) {
  spill(file("empty"), "");
  for (const char* flag : {"--grammar", "--json-schema"})
    expect_error(walsh({"run", model(), "-p", "a", flag, file("empty")}), 3, "is empty");
}

// llama.cpp has these; others are names of files.
TEST_F(RunCommand, RulesMayStandOnTheCommandLine) {
  const auto text = [&](const std::string& flag, const std::string& rules) {
    return run({"-p", "Colour: ", "--no-display-prompt", "--temp", "0", flag, rules});
  };
  const std::string grammar = R"(root ::= "red" | "green")";
  const std::string chosen = text("--grammar", grammar);
  EXPECT_TRUE(chosen == "red\n" || chosen == "green\n") << chosen;
  spill(file("grammar"), grammar);
  EXPECT_EQ(text("--grammar-file", file("grammar")), chosen);
  EXPECT_EQ(text("-j", R"( {"const": "red"})"), "\"red\"\n");
  expect_error(walsh({"run", model(), "-p", "a", "--grammar", file("none")}), 5, "none");
}

TEST_F(RunCommand, TakesThePromptFromAFileOrHidesIt) {
  spill(file("prompt.txt"), "The city of");
  EXPECT_EQ(run({"-f", file("prompt.txt"), "--temp", "0"}),
            run({"-p", "The city of", "--temp", "0"}));
  const std::string hidden = run({"-p", "The city of", "--temp", "0", "--no-display-prompt"});
  EXPECT_EQ("The city of" + hidden, run({"-p", "The city of", "--temp", "0"}));
}

TEST_F(RunCommand, OnePromptIsEnough) {
  spill(file("prompt.txt"), "The city of");
  expect_error(walsh({"run", model(), "-p", "a", "-f", file("prompt.txt")}), 2, "--prompt");
}

TEST_F(RunCommand, NoTokensMeansThePromptAlone) {
  for (const char* stream : {"--stream", "--no-stream"}) {
    const CommandResult r =
        walsh({"run", model(), "--raw", "-p", "The city of", "-n", "0", stream});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.out, "The city of\n");
    EXPECT_NE(r.err.find("generated 0 tokens"), std::string::npos) << r.err;
  }
  expect_error(walsh({"run", model(), "-p", "a", "-n", "-2"}), 2, "command line");
}

TEST_F(RunCommand, CompletesLinesWithoutAPrompt) {
  spill(file("lines"), "The city of\n\nIn the year\n/exit\nnever\n");
  const std::string text = run({"--no-cnv", "--temp", "0"}, "< " + quoted(file("lines")));
  EXPECT_EQ(text,
            run({"-p", "The city of", "--temp", "0"}) + run({"-p", "In the year", "--temp", "0"}));
}

TEST_F(RunCommand, TheFooterTellsTheSpeed) {
  const CommandResult r = walsh({"run", model(), "-p", "Once", "-n", "4", "--seed", "3"});
  ASSERT_EQ(r.status, 0);
  EXPECT_NE(r.err.find("tokens/s"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("seed 3"), std::string::npos) << r.err;
}

TEST_F(RunCommand, SamplerDefaultsComeFromTheModel) {
  const std::string folder = copied_model();
  spill(folder + "/generation_config.json", R"({"temperature": 0, "eos_token_id": 8189})");
  const CommandResult r =
      walsh({"run", folder, "--raw", "-p", "The city of London is", "-n", "24", "--quiet"});
  EXPECT_EQ(r.out, run({"-p", "The city of London is", "--temp", "0"}));
}

TEST_F(RunCommand, StopsAtTheModelsStopTokens) {
  const std::string folder = copied_model();
  std::string ids = "[";
  for (int id = 0; id < 8192; ++id)
    ids += std::to_string(id) + (id < 8191 ? "," : "]");
  spill(folder + "/generation_config.json", R"({"eos_token_id": )" + ids + "}");
  const CommandResult r = walsh({"run", folder, "--raw", "-p", "The city", "-n", "24", "--quiet"});
  EXPECT_EQ(r.out, "The city\n") << r.err;
}

TEST_F(RunCommand, CtrlCStopsTheTextAndShowsInTheStatus) {
  // Thousands of tokens are ahead when the first text is there.
  const std::string out = quoted(file("stdout"));
  const CommandResult r = shell(
      fmt::format("{} run {} --raw -p Once -n -1 --ignore-eos --isa ref --device cpu -t 1 < "
                  "/dev/null > {} 2> {} & "
                  "pid=$!; n=0; until [ -s {} ] || [ $n = 3000 ]; do n=$((n+1)); sleep 0.05; done; "
                  "kill -INT $pid; wait $pid",
                  quoted(WALSH_COMMAND), quoted(model()), out, quoted(file("stderr")), out));
  EXPECT_EQ(r.status, 130) << r.err;
  EXPECT_TRUE(r.out.starts_with("Once")) << r.out;
  EXPECT_TRUE(r.out.ends_with("\n"));
  EXPECT_NE(r.err.find("stopped"), std::string::npos) << r.err;
}

TEST_F(RunCommand, KeysAndValuesMayBeCoded) {
  const std::vector<std::string> common = {"run",      model(), "--raw", "-p", "The city of London",
                                           "--temp",   "0",     "-n",    "80", "-q",
                                           "--device", "cpu"};
  const auto text = [&](std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    const CommandResult r = walsh(more);
    EXPECT_EQ(r.status, 0) << r.err;
    return r.out;
  };
  const std::string half = text({}),
                    coded = text({"-ctk", "kt2", "-ctv", "kt2", "--kv-window", "0"});
  EXPECT_NE(coded, half) << "two bits show in 80 tokens";
  EXPECT_EQ(coded, text({"--ctk", "kt2", "--ctv", "kt2", "--kv-window", "0"}));
  EXPECT_EQ(half, text({"-ctk", "kt2", "-ctv", "kt2", "--kv-window", "100"}));
}

// Where the model has a chat template, a prompt is a message, and its answer is all.
TEST_F(RunCommand, APromptIsAMessageUnlessItIsRaw) {
  const auto text = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"run", model(),  "-p", "The city of", "-n",
                                          "8",   "--temp", "0",  "-q"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult r = walsh(arguments);
    EXPECT_EQ(r.status, 0) << r.err;
    return r.out;
  };
  const std::string raw = text({"--raw"}), answer = text({});
  EXPECT_TRUE(raw.starts_with("The city of")) << raw;
  EXPECT_EQ(raw, text({"-no-cnv"}));
  EXPECT_FALSE(answer.starts_with("The city of")) << "the question is not shown again";
  EXPECT_EQ(answer, text({"-cnv", "-st"}));
  const CommandResult system = walsh(
      {"run", model(), "-p", "The city of", "-n", "1", "-sys", "Be brief.", "--verbose-prompt"});
  EXPECT_EQ(system.status, 0) << system.err;
  EXPECT_NE(system.err.find("' brief'"), std::string::npos) << system.err;
  expect_error(walsh({"run", model(), "-p", "a", "--raw", "-sys", "x"}), 2, "--raw");
  const std::string folder = copied_model();
  spill(folder + "/tokenizer_config.json", "{}");
  const CommandResult plain =
      walsh({"run", folder, "-p", "The city of", "-n", "8", "--temp", "0", "-q"});
  EXPECT_EQ(plain.out, raw) << "without a template it is gone on with";
}

TEST_F(RunCommand, RefusesOptionsThatAreOutOfRange) {
  expect_error(walsh({"run", model(), "-p", "a", "--temp", "-1"}), 2, "temp");
  expect_error(walsh({"run", model(), "-p", "a", "--top-p", "2"}), 2, "top_p");
  expect_error(walsh({"run", model(), "-p", "a", "-n", "x"}), 2, "command line");
  expect_error(walsh({"run", model(), "-p", "a", "-c", "100000000"}), 2, "");
  expect_error(walsh({"run", model(), "-p", "a", "--isa", "sse9"}), 2, "sse9");
  expect_error(walsh({"run", model(), "-p", "a"}, "WALSH_ISA=sse9"), 2, "WALSH_ISA");
  expect_error(walsh({"run", model(), "-p", "a", "--ignore", "x"}), 2, "--quantize");
}

TEST_F(RunCommand, NamesTheTensorWhoseValuesLeaveNoFiniteLogit) {
  const std::string folder = copied_model(), part = folder + "/model-00002-of-00002.safetensors";
  std::string weights = slurp(part);
  weights.replace(weights.size() - 2, 2, "\xc0\x7f");  // the last gain is NaN
  spill(part, weights);
  const CommandResult result = walsh({"run", folder, "--raw", "-p", "a", "-n", "2", "-q"});
  EXPECT_EQ(result.status, 3);
  EXPECT_NE(result.err.find("tensor model.norm.weight: holds values that are not finite"),
            std::string::npos)
      << result.err;
}

// `walsh run ... | head` does this.
TEST_F(RunCommand, OutputThatNobodyReadsEndsItWithoutAnError) {
  const BrokenPipe pipe;
  const std::string line =
      fmt::format("{} run {} -p a -n 400 -t 2 --device cpu {} 2> {}", quoted(WALSH_COMMAND),
                  quoted(model()), pipe.as("1"), quoted(file("err")));
  const int raw = std::system(line.c_str());
  EXPECT_EQ(WEXITSTATUS(raw), 141);
  EXPECT_EQ(slurp(file("err")).find("error"), std::string::npos) << slurp(file("err"));
}

}  // namespace
}  // namespace walsh
