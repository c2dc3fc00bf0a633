#include "cli/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "cli/terminal.h"
#include "io/printable.h"

namespace walsh::cli {
namespace {

int g_output_error = 0;  // errno of the first failure of standard output

void keep_error() {
  if (g_output_error == 0) g_output_error = errno != 0 ? errno : EIO;
}

void write_output(std::string_view text) {
  if (text.empty() || output_failed()) return;
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) keep_error();
}

void flush_output() {
  errno = 0;
  if (std::fflush(stdout) != 0) keep_error();
}

}  // namespace

void write_message(std::string_view text) {
  const std::string shown = terminal_text(text);
  std::fwrite(shown.data(), 1, shown.size(), stderr);
}

void redraw_line(std::string_view text) {
  const std::string line = fmt::format("\r\033[K{}", text);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

int report(const Error& error) {
  const std::string place = error.where().empty() ? "" : one_line(error.where()) + ": ";
  message("walsh: error: {}{}\n", place, one_line(error.reason()));
  return exit_status(error.code());
}

void write_result(std::string_view text) {
  write_output(terminal_text(text));
}

void write_model_text(std::string_view text) {
  static const bool terminal = is_terminal(STDOUT_FILENO);
  write_output(terminal ? terminal_text(text) : std::string(text));
  flush_output();
}

InputColor::InputColor(int descriptor, bool wanted)
    : descriptor_(descriptor), shown_(wanted && is_terminal(descriptor)) {
  write("\033[32m");
}

InputColor::~InputColor() {
  write("\033[0m");
}

void InputColor::write(const char* code) const {
  if (!shown_) return;
  if (descriptor_ == STDOUT_FILENO) {
    write_output(code);
    flush_output();
  } else {
    std::fputs(code, stderr);
  }
}

bool output_failed() {
  return g_output_error != 0;
}

int finish_output(int status) {
  flush_output();
  if (!output_failed()) return status;
  if (g_output_error == EPIPE) return kOutputClosedStatus;
  if (status != 0) return status;
  return report(Error(ErrorCode::io, "standard output", std::strerror(g_output_error)));
}

}  // namespace walsh::cli
