// What stands on a command line besides texts: flags of other programs, values, what is too much.
#include <gtest/gtest.h>

#include "cli/command.h"

namespace walsh {
namespace {

class CommandLine : public CommandTest {
 protected:
  CommandResult run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "run");
    arguments.insert(arguments.end(), {"--temp", "0", "-q"});
    return walsh(arguments);
  }
};

// A flag that may be given several times does not take the model for its second value.
TEST_F(CommandLine, AFlagTakesOneValueInFrontOfTheModel) {
  for (const auto& flag : std::vector<std::vector<std::string>>{{"--logit-bias", "15+1"},
                                                                {"--dry-sequence-breaker", "x"}}) {
    const CommandResult r = run({flag[0], flag[1], model(), "-p", "The", "-n", "1"});
    EXPECT_EQ(r.status, 0) << r.err;
  }
  const CommandResult quantized =
      walsh({"quantize", "--candidates", "tq2,tq3", model(), file("a.gguf"), "--type", "tq3"});
  EXPECT_EQ(quantized.err.find("required"), std::string::npos) << quantized.err;
  // A folder that is no model: what follows a key is read as the model.
  for (const char* flag : {"--api-key", "--cors-origins", "--allowed-hosts"})
    expect_error(walsh({"serve", flag, "a", file("none"), "--port", "0"}), 5, "none");
}

// -hf is no -h, and -fa no file named a.
TEST_F(CommandLine, LongFlagsWithOneDashAreNotTakenForShortOnes) {
  for (const char* flag : {"-hf", "-fa", "-cb", "-tb", "-nkvo"}) {
    expect_error(run({model(), "-p", "a", flag, "1"}), 2, std::string("there is no flag ") + flag);
    EXPECT_EQ(run({model(), "-p", "a", flag, "1"}).out, "");
  }
  EXPECT_EQ(run({model(), "-p", "The", "-n3"}).out, run({model(), "-p", "The", "-n", "3"}).out);
}

// Values are texts, whatever they look like.
TEST_F(CommandLine, AValueMayLookLikeAFlag) {
  for (const char* text : {"-st", "-fa", "-ngl", "--frobnicate", "-h"}) {
    const CommandResult r = run({model(), "-n", "0", "-p", text});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.out, std::string(text) + "\n");
  }
}

TEST_F(CommandLine, WhatIsTooMuchIsNamed) {
  expect_error(run({model(), "-p", "a", "--mlock", "--keep", "3"}), 2, "there is no flag --mlock");
  expect_error(run({model(), "-p", "a", "--keep=3"}), 2, "there is no flag --keep");
  expect_error(run({model(), "another", "-p", "a"}), 2, "another is one argument too many");
  expect_error(walsh({"version"}), 2, "there is no command version");
}

TEST_F(CommandLine, NamesOfLlamaCppAreTaken) {
  const std::string text = run({model(), "-p", "The", "-n", "3"}).out;
  const CommandResult r = walsh({"run", model(), "-p", "The", "--n-predict", "3", "--temperature",
                                 "0", "--typical-p", "1", "--top-n-sigma", "-1", "-c", "0", "-q"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.out, text);
}

TEST_F(CommandLine, EscapesAreReadWhereTheyAreWanted) {
  const auto shown = [&](const std::string& flag) {
    return run({model(), "-n", "0", flag, "-p", R"(a\tb\x41\\n\q\x4)"}).out;
  };
  EXPECT_EQ(shown("-e"), "a\tbA\\n\\q\\x4\n");
  EXPECT_EQ(shown("--no-escape"), R"(a\tb\x41\\n\q\x4)"
                                  "\n");
}

TEST_F(CommandLine, NumbersOutOfRangeAreToldWithTheirRange) {
  const CommandResult r = run({model(), "-p", "a", "-c", "-1"});
  expect_error(r, 2, "--ctx: Value -1 not in range 0 to 1099511627776");
  expect_error(walsh({"eval", model(), "--text", text(), "--stride", "0"}), 2,
               "--stride: Value 0 not in range 1 to 1099511627776");
  expect_error(run({model(), "-p", "a", "-s", "99999999999999999999"}), 2, "64 bits");
}

// What types there are belongs to the commands that make them.
TEST_F(CommandLine, HelpTellsTypesWhereTheyAreChosen) {
  const auto tells = [&](const std::vector<std::string>& command) {
    return walsh(command).out.find("Lloyd-Max, 3 bits") != std::string::npos;
  };
  EXPECT_TRUE(tells({"--help"}));
  EXPECT_TRUE(tells({"quantize", "--help"}));
  EXPECT_FALSE(tells({"devices", "--help"}));
  EXPECT_FALSE(tells({"man", "serve"}));
  EXPECT_NE(walsh({"bench", "--help"}).out.find("qwen3.5-9b"), std::string::npos);
}

}  // namespace
}  // namespace walsh
