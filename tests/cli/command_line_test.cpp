// Tests how the command line is parsed: flags of other programs, values, surplus arguments.
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/command.h"
#include "cli/pseudo_terminal.h"

namespace walsh {
namespace {

class CommandLine : public CommandTest {
 protected:
  CommandResult run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "run");
    arguments.insert(arguments.end(), {"--raw", "--temp", "0", "-q"});
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
  // The folder is no model: what follows a key is read as the model.
  for (const char* flag : {"--api-key", "--cors-origins", "--allowed-hosts"})
    expect_error(walsh({"serve", flag, "a", file("none"), "--port", "0"}), 5, "none");
}

// -hf is no -h, and -fa no file named a.
TEST_F(CommandLine, LongFlagsWithOneDashAreNotTakenForShortOnes) {
  for (const char* flag : {"-hf", "-nkvo", "-lora"}) {
    expect_error(run({model(), "-p", "a", flag, "1"}), 2, std::string("there is no flag ") + flag);
    EXPECT_EQ(run({model(), "-p", "a", flag, "1"}).out, "");
  }
  EXPECT_EQ(run({model(), "-p", "The", "-n3"}).out, run({model(), "-p", "The", "-n", "3"}).out);
}

// Values that look like flags are still texts.
TEST_F(CommandLine, AValueMayLookLikeAFlag) {
  for (const char* text : {"-st", "-fa", "-ngl", "--frobnicate", "-h"}) {
    const CommandResult r = run({model(), "-n", "0", "-p", text});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.out, std::string(text) + "\n");
  }
}

TEST_F(CommandLine, WhatIsTooMuchIsNamed) {
  expect_error(run({model(), "-p", "a", "--keep=3"}), 2, "there is no flag --keep");
  expect_error(run({model(), "another", "-p", "a"}), 2, "unexpected argument another");
  expect_error(walsh({"version"}), 2, "there is no command version");
}

TEST_F(CommandLine, NamesOfLlamaCppAreTaken) {
  const std::string text = run({model(), "-p", "The", "-n", "3"}).out;
  const CommandResult r =
      walsh({"run", model(), "-p", "The", "--n-predict", "3", "--temperature", "0", "--typical-p",
             "1", "--top-n-sigma", "-1", "-c", "0", "-q", "--raw"});
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
  expect_error(run({model(), "-p", "a", "-c", "-1"}), 2,
               "--ctx: -1 is not a number from 0 to 1099511627776");
  expect_error(walsh({"eval", model(), "--text", text(), "--stride", "0"}), 2,
               "--stride: 0 is not a number from 1 to ");
  expect_error(walsh({"bench", model(), "-t", "many"}), 2,
               "--threads: many is not a number from 1 to 1024");
  expect_error(run({model(), "-p", "a", "-s", "99999999999999999999"}), 2, "64 bits");
}

TEST_F(CommandLine, ValuesThatAreMissingOrNoNumbersAreToldInPlainWords) {
  expect_error(walsh({"run", model()}, "", "-p < /dev/null"), 2, "--prompt: a value is needed");
  expect_error(walsh({"run", model(), "--temp", "warm"}), 2, "--temp: warm is not a number");
  expect_error(walsh({"run", model(), "--temp", "1", "--temp", "2"}), 2,
               "--temp: is given more than once");
  for (const char* flag :
       {"--temp", "--top-k", "--threads", "--device-memory", "--json-schema", "--quantize"}) {
    const std::string expected = std::string(flag) + ": a value is needed";
    expect_error(walsh({"run", model(), "-p", "a", flag, ""}), 2, expected);
    expect_error(walsh({"run", model(), "-p", "a", std::string(flag) + "="}), 2, expected);
  }
  EXPECT_EQ(walsh({"run"}).err, "walsh: error: command line: MODEL is required\n");
  expect_error(walsh({"completions", "tcsh"}), 2, "SHELL: tcsh is none of bash, zsh, fish");
}

TEST_F(CommandLine, HelpIsShortAndAllOfItOnRequest) {
  for (const char* command : {"quantize", "run", "serve", "eval", "bench", "inspect", "formats"}) {
    const CommandResult brief = walsh({command, "--help"}), all = walsh({command, "--help-all"});
    EXPECT_EQ(brief.status, 0) << brief.err;
    EXPECT_LE(std::count(brief.out.begin(), brief.out.end(), '\n'), 45) << brief.out;
    EXPECT_NE(brief.out.find("Examples:"), std::string::npos) << brief.out;
    EXPECT_EQ(brief.out.find('\033'), std::string::npos) << "colours are for terminals";
    EXPECT_GT(all.out.size(), brief.out.size() / 2) << command;
    EXPECT_EQ(walsh({"help", command}).out, brief.out);
  }
  EXPECT_EQ(walsh({"help"}).out, walsh({"--help"}).out);
  EXPECT_EQ(walsh({"-V"}).out, walsh({"--version"}).out);
  EXPECT_NE(walsh({"quantize", "--help-all"}).out.find("Lloyd-Max, 3 bits"), std::string::npos);
  EXPECT_EQ(walsh({"man", "serve"}).out.find("Lloyd-Max, 3 bits"), std::string::npos);
  EXPECT_NE(walsh({"man"}).out.find("\nwalsh \\- compresses language models"), std::string::npos);
  EXPECT_NE(walsh({"bench", "--help-all"}).out.find("qwen3.5-9b"), std::string::npos);
  for (const char* page : {"help", "man"})
    expect_error(walsh({page, "rum"}), 2, "there is no command rum; did you mean run?");
}

TEST_F(CommandLine, NamesThatAreNearlyRightAreTold) {
  expect_error(walsh({"quantise", model()}), 2, "did you mean quantize?");
  expect_error(run({model(), "--prompd", "a"}), 2, "did you mean --prompt?");
  expect_error(walsh({"quantize", model(), file("a"), "--type", "tq44"}), 2, "did you mean tq4?");
  const std::string folder = copied_model("my-model");
  expect_error(run({file("my-modle"), "-p", "a"}), 5, "did you mean " + folder + "?");
  std::filesystem::create_symlink("nowhere", file("link"));
  EXPECT_EQ(walsh({"run", file("link")}).err.find("did you mean"), std::string::npos);
  spill(file("model-1.gguf"), "");
  const CommandResult full =
      walsh({"quantize", model(), file("model-2.gguf"), "--type", "tq2"}, "ulimit -f 100;");
  expect_error(full, 5, "model-2.gguf: cannot");
  EXPECT_EQ(full.err.find("did you mean"), std::string::npos) << "the name was not the reason";
  expect_error(run({"org/my-model-7b", "-p", "a"}), 5, "hf download org/my-model-7b");
}

TEST_F(CommandLine, TypesMayBeWrittenInAnyCase) {
  const std::string lower = quantize("a.gguf", "tq3"), upper = quantize("b.gguf", "TQ3");
  EXPECT_TRUE(slurp(lower) == slurp(upper));
  EXPECT_EQ(walsh({"quantize", model(), "--type", "TC3:l12", "--dry-run"}).status, 0);
  EXPECT_EQ(run({model(), "-p", "The", "-n", "2", "-ctk", "Q8_0"}).status, 0);
}

TEST_F(CommandLine, FlagsOfLlamaCppThatChangeNothingAreTakenWithANote) {
  const std::string text = run({model(), "-p", "The", "-n", "3"}).out;
  for (const std::vector<std::string>& flags :
       std::vector<std::vector<std::string>>{{"-fa"},
                                             {"-fa", "on"},
                                             {"--flash-attn=auto"},
                                             {"-b", "512"},
                                             {"-ub", "512"},
                                             {"--mlock"},
                                             {"--no-mmap"},
                                             {"-tb", "4"},
                                             {"--batch-size=512"},
                                             {"-cb"}}) {
    std::vector<std::string> arguments = flags;
    arguments.insert(arguments.end(), {model(), "-p", "The", "-n", "3"});
    const CommandResult r = run(arguments);
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.out, text) << flags[0];
    EXPECT_NE(r.err.find("changes nothing: "), std::string::npos) << flags[0] << r.err;
  }
  EXPECT_EQ(walsh({"inspect", model(), "--mlock"}).status, 2) << "for commands that run models";
}

TEST_F(CommandLine, FlagsWithoutEffectSayThatTheyChangeNothing) {
  const auto dry_run = [&](const std::string& type, const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {"quantize", model(), "--dry-run", "--type", type};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const CommandResult r = walsh(arguments);
    EXPECT_EQ(r.status, 0) << r.err;
    return r.err;
  };
  const struct {
    std::string type, flag, value;
    bool idle;
  } cases[] = {
      {"q8_0", "--block", "128", true},
      {"tq3", "--block", "128", false},
      {"q8_0", "--rotation", "qr", true},
      {"q8_0", "--seed", "7", true},
      {"tq3", "--seed", "7", false},
      {"q4_0", "--balance", "off", true},
      {"tq4", "--balance", "off", false},
      {"q8_0", "--effort", "fast", true},
      {"tc3", "--effort", "fast", false},
      {"tc3", "--scale", "shape-gain", true},
      {"tq3", "--scale", "shape-gain", false},
      {"q8_0", "--group", "128", true},
      {"tq3", "--codebook", "universal", true},
      {"tq3", "--levels", "full", true},
  };
  for (const auto& [type, flag, value, idle] : cases)
    EXPECT_EQ(dry_run(type, {flag, value}).find("changes nothing: ") != std::string::npos, idle)
        << type << " " << flag << " " << value;
  for (const auto& [group, type] :
       {std::pair{"128", "tq3 "}, {"64", "tq3:g64"}, {"full", "tq3:full"}})
    EXPECT_NE(
        walsh({"quantize", model(), "--dry-run", "--type", "tq3", "--group", group}).out.find(type),
        std::string::npos)
        << group;
  EXPECT_NE(dry_run("tq3", {"--head-type", "tq4"}).find("--head-type changes nothing"),
            std::string::npos)
      << "the head is the embedding";
  EXPECT_NE(dry_run("tq3", {"--head-type", "q8_0"}).find("--head-type changes nothing"),
            std::string::npos)
      << "also where it names the default";
  EXPECT_EQ(dry_run("tq3", {}).find("--head-type"), std::string::npos);
  EXPECT_EQ(dry_run("tq3", {"--embed-type", "tq4"}).find("--head-type"), std::string::npos);
  EXPECT_NE(dry_run("q8_0", {"--no-signs"}).find("--no-signs changes nothing"), std::string::npos);
  EXPECT_NE(dry_run("tq3", {"--rotation", "none", "--block", "64"}).find("--block changes nothing"),
            std::string::npos);
  EXPECT_EQ(dry_run("q8_0", {"--block", "64", "--override", "re:down_proj=tq3"}).find("nothing"),
            std::string::npos)
      << "a rule has a type that is rotated";
}

TEST_F(CommandLine, VariantsThatATypeDoesNotHaveAreRefusedByTheirFlag) {
  const struct {
    const char *type, *flag, *value, *types;
  } cases[] = {{"tc3", "--group", "full", "tq2, tq3 and tq4"},
               {"q8_0", "--group", "64", "tq2, tq3 and tq4"},
               {"tq4", "--codebook", "layer", "pq3"},
               {"tq4", "--levels", "strict", "itq3_s"}};
  for (const auto& [type, flag, value, types] : cases) {
    const CommandResult r = walsh({"quantize", model(), file("a"), "--type", type, flag, value});
    expect_error(r, 2, std::string(flag) + ": '");
    EXPECT_NE(r.err.find(std::string("does not go with ") + type + ", but with " + types),
              std::string::npos)
        << r.err;
  }
  expect_error(walsh({"quantize", model(), file("a"), "--type", "tq9", "--levels", "strict"}), 2,
               "there is no type 'tq9'");
}

TEST_F(CommandLine, FlagsOfRunningModelsThatChangeNothingAreTold) {
  const auto told = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {model(), "-p", "The", "-n", "1", "--device", "cpu"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const CommandResult r = run(arguments);
    EXPECT_EQ(r.status, 0) << r.err;
    return r.err.find(" nothing: ") != std::string::npos ||
           r.err.find("changes nothing") != std::string::npos ||
           r.err.find("change nothing") != std::string::npos;
  };
  EXPECT_TRUE(told({"--quantize", "tq3", "--effort", "fast", "--activations", "lut"}));
  EXPECT_FALSE(told({"--quantize", "tq3", "--effort", "fast", "--activations", "i8x2"}));
  EXPECT_TRUE(told({"--activations", "i8"})) << "nothing is coded";
  EXPECT_TRUE(told({"--device-memory", "1GiB"}));
  EXPECT_TRUE(told({"--kv-window", "64"}));
  EXPECT_FALSE(told({"--spec", "ngram", "-ctk", "q8_0"}));
  EXPECT_TRUE(told({"--chat-template-kwargs", "{}"}));
  EXPECT_FALSE(told({}));
  EXPECT_TRUE(told({"--dry-base", "2"}));
  EXPECT_TRUE(told({"--dry-sequence-breaker", "x"}));
  EXPECT_TRUE(told({"--xtc-threshold", "0.2", "--xtc-probability", "0"}));
  EXPECT_FALSE(told({"--dry-base", "2", "--dry-multiplier", "0.8"}));
  EXPECT_FALSE(told({"--xtc-threshold", "0.2", "--xtc-probability", "0.5"}));
  expect_error(walsh({"eval", model(), "--text", text(), "--reference-device", "cpu"}), 2,
               "--reference-device: works only with --reference");
  expect_error(walsh({"bench", model(), "--type", "tq3"}), 2, "--synthetic");
  expect_error(walsh({"bench", model(), "--shapes", "64x64"}), 2, "--kernels");
  expect_error(walsh({"bench", "--kernels", "--parallel", "2"}), 2, "--parallel");
}

// Colours are never written into files, nor where NO_COLOR asks for none.
TEST_F(CommandLine, ColoursAreForTerminals) {
  const std::vector<std::string> wrong = {"run", file("none"), "-p", "a"};
  PseudoTerminal coloured(wrong, "", "xterm");
  EXPECT_EQ(coloured.finish(), 5);
  EXPECT_NE(coloured.shown().find("\033[1;31mwalsh: error: \033[0m"), std::string::npos)
      << coloured.shown();
  PseudoTerminal dumb(wrong, "");
  EXPECT_EQ(dumb.finish(), 5);
  EXPECT_EQ(dumb.shown().find('\033'), std::string::npos) << dumb.shown();
  ::setenv("NO_COLOR", "1", 1);
  PseudoTerminal plain(wrong, "", "xterm");
  ::unsetenv("NO_COLOR");
  EXPECT_EQ(plain.finish(), 5);
  EXPECT_EQ(plain.shown().find('\033'), std::string::npos) << plain.shown();
  EXPECT_EQ(walsh(wrong).err.find('\033'), std::string::npos);
}

}  // namespace
}  // namespace walsh
