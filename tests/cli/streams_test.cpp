// Tests standard streams that are closed, full or broken: results do not depend on messages, and a
// result that cannot be written is an error.
#include <gtest/gtest.h>

#include "cli/command.h"

namespace walsh {
namespace {

class Streams : public CommandTest {
 protected:
  // The shell's redirections come after those to the two files, which they may undo.
  CommandResult redirected(const std::vector<std::string>& arguments, const std::string& streams) {
    for (const char* name : {"stdout", "stderr"})
      spill(file(name), "");
    std::string line = "export CUDA_VISIBLE_DEVICES=; exec " + quoted(WALSH_COMMAND);
    for (const std::string& a : arguments)
      line += fmt::format(" {}", quoted(a));
    line += fmt::format(" < /dev/null > {} 2> {} {}", quoted(file("stdout")),
                        quoted(file("stderr")), streams);
    return shell(fmt::format("bash -c {}", walsh::quoted(line)));
  }
  std::vector<std::string> quantize_to(const std::string& name) const {
    return {"quantize", model(), file(name), "--type", "tq4", "--effort", "fast", "-t", "1"};
  }
  static std::vector<std::string> run(const std::string& more) {
    return {"run", model(), "--raw", "-p", "The city of London is", "-n", "8", "--temp",
            "0",   "-t",    "1",     more};
  }
};

TEST_F(Streams, ClosedDescriptorsDoNotGetIntoAFile) {
  ASSERT_EQ(redirected(quantize_to("whole.gguf"), "").status, 0);
  const std::string whole = slurp(file("whole.gguf"));
  struct {
    const char* streams;
    int status;
  } const cases[] = {
      {"0<&-", 0}, {"1>&-", 5}, {"2>&-", 0}, {"0<&- 2>&-", 0}, {"0<&- 1>&- 2>&-", 5}};
  for (const auto& [streams, status] : cases) {
    const CommandResult r = redirected(quantize_to("out.gguf"), streams);
    EXPECT_EQ(r.status, status) << streams << ": " << r.err;
    EXPECT_TRUE(slurp(file("out.gguf")) == whole) << streams;
    std::filesystem::remove(file("out.gguf"));
  }
}

TEST_F(Streams, MessagesThatCannotBeWrittenChangeNothing) {
  const std::vector<std::string> eval = {"eval",     model(), "--text", text(), "-c", "32",
                                         "--chunks", "3",     "-t",     "1",    "-v", "--json"};
  const std::string generated = redirected(run("--stream"), "").out;
  ASSERT_FALSE(generated.empty());
  const BrokenPipe pipe;
  for (const std::string& streams :
       {std::string("2>&-"), std::string("2> /dev/full"), pipe.as("2")}) {
    if (streams == "2> /dev/full" && !std::filesystem::exists("/dev/full")) continue;
    EXPECT_EQ(redirected(quantize_to("out.gguf"), streams).status, 0) << streams;
    EXPECT_TRUE(std::filesystem::remove(file("out.gguf"))) << streams;
    const CommandResult r = redirected(run("--stream"), streams);
    EXPECT_EQ(r.status, 0) << streams;
    EXPECT_EQ(r.out, generated) << streams;
    const CommandResult evaluated = redirected(eval, streams);
    EXPECT_EQ(evaluated.status, 0) << streams;
    EXPECT_NE(evaluated.out.find("\"ppl\""), std::string::npos) << streams << evaluated.out;
  }
}

TEST_F(Streams, AResultThatCannotBeWrittenIsAnError) {
  const std::string path = quantize("a.gguf", "tq3");
  const std::vector<std::vector<std::string>> commands = {
      {"devices"},        {"formats", "tq3", "-t", "1"},
      {"inspect", path},  {"--version"},
      {"eval", "--help"}, run("--stream"),
      run("--no-stream")};
  for (const char* streams : {"1>&-", "1> /dev/full"}) {
    if (streams[2] == ' ' && !std::filesystem::exists("/dev/full")) continue;
    for (const auto& command : commands) {
      const CommandResult r = redirected(command, streams);
      EXPECT_EQ(r.status, 5) << streams << " " << command[0];
      const size_t at = r.err.find("walsh: error: standard output: ");
      ASSERT_NE(at, std::string::npos) << streams << " " << command[0] << ": " << r.err;
      EXPECT_EQ(r.err.find('\n', at), r.err.size() - 1) << r.err;
    }
  }
}

TEST_F(Streams, AReaderThatHasGoneIsNoError) {
  const BrokenPipe pipe;
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"--help"}, {"quantize", "--help"}, {"devices"}}) {
    const CommandResult r = redirected(command, pipe.as("1"));
    EXPECT_EQ(r.status, 141);
    EXPECT_EQ(r.err, "");
  }
}

TEST_F(Streams, ClosedStandardInputHasNoLines) {
  const CommandResult r = redirected({"run", model(), "-n", "4", "-t", "1"}, "0<&-");
  expect_error(r, 5, "standard input");
}

TEST_F(Streams, TextsMayComeFromPipes) {
  const std::vector<std::string> options = {"-c", "32", "--chunks", "2", "--json"};
  const auto eval = [&](const std::string& path, const std::string& after) {
    std::vector<std::string> arguments = {"eval", model(), "--text", path};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return walsh(arguments, "", after);
  };
  const auto perplexity = [](const CommandResult& r) {
    EXPECT_EQ(r.status, 0) << r.err;
    const size_t at = r.out.find("\"ppl\"");
    return at == r.out.npos ? r.out : r.out.substr(at, r.out.find('\n', at) - at);
  };
  const std::string expected = perplexity(eval(text(), "< /dev/null"));
  ASSERT_EQ(std::system(("mkfifo " + quoted(file("fifo"))).c_str()), 0);
  EXPECT_EQ(perplexity(eval("/dev/stdin", "< " + quoted(text()))), expected);
  ASSERT_EQ(std::system(fmt::format("cat {} > {} &", quoted(text()), quoted(file("fifo"))).c_str()),
            0);
  EXPECT_EQ(perplexity(eval(file("fifo"), "< /dev/null")), expected);

  spill(file("prompt"), "The city of");
  const std::vector<std::string> run = {"run", model(), "-n", "4", "--temp", "0", "-f"};
  std::vector<std::string> from_file = run, from_pipe = run;
  from_file.push_back(file("prompt"));
  from_pipe.push_back("/dev/stdin");
  const CommandResult piped = walsh(from_pipe, fmt::format("cat {} |", quoted(file("prompt"))), "");
  EXPECT_EQ(piped.status, 0) << piped.err;
  EXPECT_EQ(piped.out, walsh(from_file).out);
}

TEST_F(Streams, ATextForCalibrationMayComeFromAPipe) {
  const auto quantized = [&](const std::string& name, const std::string& path,
                             const std::string& before, const std::string& after) {
    const CommandResult r = walsh({"quantize", model(), file(name), "--type", "tq2", "--effort",
                                   "fast", "--calibrate-tokens", "512", "--calibrate", path},
                                  before, after);
    EXPECT_EQ(r.status, 0) << r.err;
    return slurp(file(name));
  };
  const std::string direct = quantized("a.gguf", text(), "", "< /dev/null");
  ASSERT_FALSE(direct.empty());
  EXPECT_TRUE(quantized("b.gguf", "/dev/stdin", fmt::format("cat {} |", quoted(text())), "") ==
              direct);
}

}  // namespace
}  // namespace walsh
