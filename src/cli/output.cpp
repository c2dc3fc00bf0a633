#include "cli/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "cli/terminal.h"
#include "io/printable.h"

namespace walsh::cli {
namespace {

int g_output_error = 0;  // it is the errno of the first failure of standard output

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

void print_line(Color color, const char* kind, const std::string& text) {
  constexpr size_t kLongest = 1 << 14;
  write_message(color, kind, one_line(text.substr(0, kLongest)) + "\n");
}

}  // namespace

void write_message(std::string_view text) {
  const std::string shown = terminal_text(text);
  std::fwrite(shown.data(), 1, shown.size(), stderr);
}

const char* color_code(int descriptor, Color color) {
  const char* off = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool shown = (off == nullptr || *off == '\0') && term != nullptr && *term != '\0' &&
                     std::string_view(term) != "dumb" && is_terminal(descriptor);
  if (!shown) return "";
  switch (color) {
    case Color::none:
      return "\033[0m";
    case Color::bold:
      return "\033[1m";
    case Color::red:
      return "\033[1;31m";
    case Color::yellow:
      return "\033[33m";
    case Color::green:
      return "\033[32m";
  }
  return "";
}

void write_message(Color color, std::string_view word, std::string_view text) {
  const std::string line = fmt::format("{}{}{}{}", color_code(STDERR_FILENO, color), word,
                                       color_code(STDERR_FILENO, Color::none), terminal_text(text));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void redraw_line(std::string_view text) {
  const std::string line = fmt::format("\r\033[K{}", text);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

int report(const Error& error) {
  const std::string place = error.where().empty() ? "" : one_line(error.where()) + ": ";
  write_message(Color::red,
                "walsh: error: ", fmt::format("{}{}\n", place, one_line(error.reason())));
  return exit_status(error.code());
}

void print_note(const std::string& text) {
  print_line(Color::green, "walsh: note: ", text);
}

void print_warning(const std::string& text) {
  print_line(Color::yellow, "walsh: warning: ", text);
}

void print_notes(const std::vector<std::string>& texts) {
  for (const std::string& text : texts)
    print_note(text);
}

void write_result(std::string_view text) {
  write_output(terminal_text(text));
}

void write_help(std::string_view text) {
  write_output(text);
}

void write_model_text(std::string_view text) {
  static const bool terminal = is_terminal(STDOUT_FILENO);
  write_output(terminal ? terminal_text(text) : std::string(text));
  flush_output();
}

InputColor::InputColor(int descriptor, bool wanted) : descriptor_(descriptor), shown_(wanted) {
  write(Color::green);
}

InputColor::~InputColor() {
  write(Color::none);
}

void InputColor::write(Color color) const {
  const char* code = color_code(descriptor_, color);
  if (!shown_ || *code == '\0') return;
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
