// Runs the real command in a shell and captures its output.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "shell_text.h"
#include "threads.h"

namespace walsh {

struct CommandResult {
  int status = -1;  // exit status; -1 if a signal ended it
  std::string out, err;
};

inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void spill(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Holds the write end of a pipe without a reader, for a shell's redirection; SIGPIPE has its
// default effect, whatever the caller has set.
class BrokenPipe {
 public:
  BrokenPipe() : before_(std::signal(SIGPIPE, SIG_DFL)) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    close(ends[0]);
    EXPECT_EQ(dup2(ends[1], kEnd), kEnd);
    close(ends[1]);
  }
  ~BrokenPipe() {
    close(kEnd);
    std::signal(SIGPIPE, before_);
  }
  BrokenPipe(const BrokenPipe&) = delete;
  BrokenPipe& operator=(const BrokenPipe&) = delete;
  std::string as(const std::string& stream) const { return fmt::format("{}>&{}", stream, kEnd); }

 private:
  static constexpr int kEnd = 8;
  void (*before_)(int);
};

// Gives every test a folder of its own, which is removed at the end.
class CommandTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              ("walsh_cli_" + std::string(info->name()) + "_" + std::to_string(getpid()));
    std::filesystem::remove_all(folder_);  // of a test that was killed
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  static std::string model() { return WALSH_SOURCE_DIR "/models/walsh-tiny-13m"; }
  static std::string text() { return WALSH_SOURCE_DIR "/models/eval.txt"; }

  // Runs on the CPU, whose results tests know, and with few threads unless told otherwise, because
  // several tests run at a time. `before` is shell text in front of the command: variables, ulimit.
  CommandResult walsh(const std::vector<std::string>& arguments, const std::string& before = "",
                      const std::string& after = "< /dev/null") const {
    std::string line =
        fmt::format("export CUDA_VISIBLE_DEVICES=; {} {}", before, quoted(WALSH_COMMAND));
    for (const std::string& a : arguments)
      line += fmt::format(" {}", quoted(a));
    if (takes_threads(arguments)) line += fmt::format(" -t {}", test::kThreads);
    line += fmt::format(" {} > {} 2> {}", after, quoted(file("stdout")), quoted(file("stderr")));
    return shell(line);
  }

  // Runs a line of shell that redirects to these two files, and returns their content.
  CommandResult shell(const std::string& line) const {
    const int raw = std::system(line.c_str());
    CommandResult result;
    if (WIFEXITED(raw)) result.status = WEXITSTATUS(raw);
    result.out = slurp(file("stdout"));
    result.err = slurp(file("stderr"));
    return result;
  }

  // Quantizes the model of the repository into `name` and returns its path.
  std::string quantize(const std::string& name, const std::string& type,
                       const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"quantize", model(),    file(name), "--type",
                                          type,       "--effort", "fast"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult result = walsh(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return file(name);
  }

  // Makes a copy of the model's folder that a test may spoil.
  std::string copied_model(const std::string& name = "model") const {
    std::filesystem::copy(model(), file(name), std::filesystem::copy_options::recursive);
    return file(name);
  }

  // Expects one line `walsh: error: WHERE: REASON` that names `where`, and nothing on stdout.
  static void expect_error(const CommandResult& result, int status, const std::string& where) {
    EXPECT_EQ(result.status, status) << result.err;
    EXPECT_TRUE(result.err.starts_with("walsh: error: ")) << result.err;
    EXPECT_NE(result.err.find(where), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << result.err;
    EXPECT_EQ(result.out, "");
  }

 private:
  static bool takes_threads(const std::vector<std::string>& arguments) {
    const auto contains = [&](const char* name) {
      return std::find(arguments.begin(), arguments.end(), name) != arguments.end();
    };
    if (arguments.empty() || contains("-t") || contains("--threads")) return false;
    const std::string& command = arguments[0];
    return command == "quantize" || command == "run" || command == "eval" || command == "bench";
  }

  std::filesystem::path folder_;
};

}  // namespace walsh
