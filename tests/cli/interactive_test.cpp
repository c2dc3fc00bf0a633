// Tests `walsh run` without a prompt: lines from a terminal or a pipe, and the signals that end it.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "cli/command.h"
#include "cli/pseudo_terminal.h"
#include "swap_tokens.h"

namespace walsh {
namespace {

class Interactive : public CommandTest {
 protected:
  // Thousands of slow tokens are ahead when the first text is there.
  std::vector<std::string> endless() const {
    return {"run",   model(), "--no-cnv", "-n",  "-1", "--ignore-eos",
            "--isa", "ref",   "--device", "cpu", "-t", "1"};
  }
  // Runs lines of a file.
  CommandResult lines(const std::string& text, const std::vector<std::string>& more) const {
    spill(file("lines"), text);
    std::vector<std::string> arguments = {"run",    model(), "--no-cnv", "-n", "4",
                                          "--temp", "0",     "--device", "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return walsh(arguments, "", "< " + quoted(file("lines")));
  }
  static size_t count(const std::string& text, const std::string& part) {
    size_t found = 0;
    for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size())
      ++found;
    return found;
  }
};

TEST_F(Interactive, SignalsThatMeanTheProgramEndItDuringACompletion) {
  for (const int number : {SIGTERM, SIGHUP}) {
    PseudoTerminal terminal(endless(), "");
    terminal.wait_for("> ");
    terminal.type("Once upon a time\n");
    terminal.wait_for("time");
    terminal.wait_for_output(5);
    terminal.signal(number);
    EXPECT_EQ(terminal.finish(), 130) << terminal.shown();
    EXPECT_NE(terminal.shown().find("stopped"), std::string::npos) << terminal.shown();
  }
}

TEST_F(Interactive, SigtermEndsItAtThePrompt) {
  PseudoTerminal terminal(endless(), "");
  terminal.wait_for("> ");
  terminal.signal(SIGTERM);
  EXPECT_EQ(terminal.finish(), 130) << terminal.shown();
}

TEST_F(Interactive, CtrlCStopsACompletionAndAtThePromptTheProgram) {
  PseudoTerminal terminal(endless(), "");
  terminal.wait_for("> ");
  for (int line = 0; line < 2; ++line) {
    terminal.type("Once upon a time\n");
    terminal.wait_for("time");
    terminal.wait_for_output(5);
    terminal.type("\x03");
    terminal.wait_for("stopped");
    terminal.wait_for("> ");
  }
  terminal.type("half a line\x03");
  terminal.wait_for("Ctrl-C again");
  terminal.wait_for("> ");
  terminal.type("Once\n");  // another line in between: the next one is a first one again
  terminal.wait_for("Once");
  terminal.wait_for_output(5);
  terminal.type("\x03");
  terminal.wait_for("stopped");
  terminal.wait_for("> ");
  for (int press = 0; press < 2; ++press) {
    terminal.type("\x03");
    if (press == 0) terminal.wait_for("Ctrl-C again");
  }
  EXPECT_EQ(terminal.finish(), 130) << terminal.shown();
}

TEST_F(Interactive, CtrlDEndsIt) {
  PseudoTerminal terminal(endless(), "");
  terminal.wait_for("> ");
  terminal.type("\x04");
  EXPECT_EQ(terminal.finish(), 0) << terminal.shown();
}

TEST_F(Interactive, ALineThatDoesNotFitDoesNotEndIt) {
  std::string words;
  for (int i = 0; i < 40; ++i)
    words += "The city of London ";
  const CommandResult r = lines(words + "\nThe city of\n", {"-c", "32"});
  EXPECT_EQ(r.status, 2) << "of the line that was refused\n" << r.err;
  EXPECT_EQ(count(r.err, "walsh: error: context: "), 1u) << r.err;
  EXPECT_EQ(r.out, lines("The city of\n", {"-c", "32"}).out);
}

TEST_F(Interactive, ALineBeyondAllBoundsDoesNotEndIt) {
  const CommandResult r = lines(std::string((64 << 20) + 100'000, 'a') + "\nThe city of\n", {});
  EXPECT_EQ(r.status, 4) << r.err;
  EXPECT_EQ(count(r.err, "walsh: error: standard input: "), 1u) << r.err;
  EXPECT_EQ(r.out, lines("The city of\n", {}).out);
}

TEST_F(Interactive, TheLastLineNeedsNoEnd) {
  EXPECT_EQ(lines("The city of", {}).out, lines("The city of\n", {}).out);
  EXPECT_EQ(lines("", {}).status, 0);
}

TEST_F(Interactive, OutputThatNobodyReadsEndsTheLines) {
  std::string text;
  for (int i = 0; i < 50; ++i)
    text += "The city of\n";
  spill(file("lines"), text);
  const BrokenPipe pipe;
  const std::string line =
      fmt::format("{} run {} -n 2 -t 2 --device cpu < {} {} 2> {}", quoted(WALSH_COMMAND),
                  quoted(model()), quoted(file("lines")), pipe.as("1"), quoted(file("err")));
  const int raw = std::system(line.c_str());
  EXPECT_EQ(WEXITSTATUS(raw), 141);
  const std::string err = slurp(file("err"));
  EXPECT_LE(count(err, "tokens/s"), 2u) << "one footer at most, of two rates\n" << err;
  EXPECT_EQ(err.find("error"), std::string::npos) << err;
}

TEST_F(Interactive, EscapesInTextDoNotActOnATerminal) {
  // Greedy decoding continues with " a", which is ESC now.
  const std::string folder = copied_model();
  swap_tokens(folder + "/tokenizer.json", kWordA, kEscapeByte);
  const std::vector<std::string> arguments = {
      "run",    folder, "--raw",    "-p", "\x1b[31mThe city of London is", "-n", "12",
      "--temp", "0",    "--device", "cpu"};
  const CommandResult piped = walsh(arguments);
  ASSERT_EQ(piped.status, 0) << piped.err;
  ASSERT_GE(count(piped.out, "\x1b"), 2u)
      << "the prompt's and the model's, as they are: " << piped.out;
  PseudoTerminal terminal(arguments, file("messages"));
  EXPECT_EQ(terminal.finish(), 0);
  EXPECT_EQ(count(terminal.shown(), "\x1b"), 0u) << terminal.shown();
  EXPECT_EQ(count(terminal.shown(), "\\x1b"), count(piped.out, "\x1b")) << terminal.shown();
}

}  // namespace
}  // namespace walsh
