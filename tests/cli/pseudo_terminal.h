// Runs the real command in a pseudo terminal, types, and reads its output.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

namespace walsh {

// The terminal does not echo, so that all it shows comes from the command. What takes longer than
// two minutes fails: the command is then killed.
class PseudoTerminal {
 public:
  // Standard error goes to the file `messages` unless it is empty. With another `term` than dumb
  // typed lines are edited, and what is typed is shown.
  PseudoTerminal(const std::vector<std::string>& arguments, const std::string& messages,
                 const char* term = "dumb") {
    winsize size{24, 200, 0, 0};
    int master = -1;
    child_ = forkpty(&master, nullptr, nullptr, &size);
    if (child_ == 0) run(arguments, messages, term);
    EXPECT_GT(child_, 0);
    master_ = master;
  }
  ~PseudoTerminal() {
    if (!ended_) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    ::close(master_);
  }
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  void type(const std::string& text) {
    EXPECT_EQ(::write(master_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void signal(int number) { ::kill(child_, number); }

  // Waits until `bytes` more were shown, or the command has ended.
  void wait_for_output(size_t bytes) {
    const size_t wanted = shown_.size() + bytes;
    while (shown_.size() < wanted && read_some()) {
    }
    EXPECT_GE(shown_.size(), wanted) << shown_;
  }
  // Waits for `text` behind what the last call has found.
  void wait_for(const std::string& text) {
    size_t at;
    while ((at = shown_.find(text, found_)) == shown_.npos && read_some()) {
    }
    ASSERT_NE(at, shown_.npos) << "'" << text << "' was not shown: " << shown_;
    found_ = at + text.size();
  }

  // Waits for the end; returns the exit status, -1 if a signal ended it.
  int finish() {
    while (read_some()) {
    }
    int raw = 0;
    for (; ::waitpid(child_, &raw, WNOHANG) == 0; ::usleep(10'000)) {
      if (std::chrono::steady_clock::now() < deadline_) continue;
      ADD_FAILURE() << "the command did not end";
      ::kill(child_, SIGKILL);
    }
    ended_ = true;
    return WIFEXITED(raw) ? WEXITSTATUS(raw) : -1;
  }
  const std::string& shown() const { return shown_; }

 private:
  [[noreturn]] static void run(const std::vector<std::string>& arguments,
                               const std::string& messages, const char* term) {
    ::setenv("TERM", term, 1);
    termios mode{};
    tcgetattr(STDIN_FILENO, &mode);
    mode.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &mode);
    if (!messages.empty()) {
      const int file = ::open(messages.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      ::dup2(file, STDERR_FILENO);
      ::close(file);
    }
    std::vector<char*> argv = {const_cast<char*>(WALSH_COMMAND)};
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    ::execv(WALSH_COMMAND, argv.data());
    ::_exit(127);
  }

  // Returns false when nothing more can come, or the time is over.
  bool read_some() {
    pollfd waiting{master_, POLLIN, 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline_ - std::chrono::steady_clock::now());
    if (left.count() <= 0 || ::poll(&waiting, 1, static_cast<int>(left.count())) <= 0) return false;
    char piece[4096];
    const ssize_t got = ::read(master_, piece, sizeof piece);
    if (got <= 0) return false;
    shown_.append(piece, static_cast<size_t>(got));
    return true;
  }

  const std::chrono::steady_clock::time_point deadline_ =
      std::chrono::steady_clock::now() + std::chrono::minutes(2);
  pid_t child_ = -1;
  int master_ = -1;
  bool ended_ = false;
  std::string shown_;
  size_t found_ = 0;
};

}  // namespace walsh
