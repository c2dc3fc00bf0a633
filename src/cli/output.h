// What the command writes: results to standard output, messages to standard error. Neither throws,
// and no string of a file can act on the terminal (io/printable.h).
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "walsh/error.h"

namespace walsh::cli {

// As a shell says of a program that SIGPIPE has ended.
inline constexpr int kOutputClosedStatus = 141;

enum class Color { none, bold, red, yellow, green };

// The code that text in this colour begins with, or that ends it (none); empty where the descriptor
// is no terminal that shows colours, and where NO_COLOR is set.
const char* color_code(int descriptor, Color color);

// A message. Nothing depends on its arrival: standard error may be closed, full or a broken pipe.
void write_message(std::string_view text);

template <typename... Args>
void message(fmt::format_string<Args...> format, Args&&... args) {
  write_message(fmt::format(format, std::forward<Args>(args)...));
}

// Puts `text`, which has no control characters, in the place of a terminal's last line.
void redraw_line(std::string_view text);

// The same behind a word in a colour.
void write_message(Color color, std::string_view word, std::string_view text);

// "walsh: error: WHERE: REASON" on one line; returns the exit status of the code.
int report(const Error& error);

// Part of a result, buffered. A failure is kept until finish_output.
void write_result(std::string_view text);

template <typename... Args>
void print_result(fmt::format_string<Args...> format, Args&&... args) {
  write_result(fmt::format(format, std::forward<Args>(args)...));
}

// The same with the codes of color_code as they are, for texts of the program itself.
void write_help(std::string_view text);

// Text of a model, shown at once; for a program that reads it as it is.
void write_model_text(std::string_view text);

// While it lives, text on `descriptor` (standard output or error) is coloured if `wanted` and it is
// a terminal.
class InputColor {
 public:
  InputColor(int descriptor, bool wanted);
  ~InputColor();
  InputColor(const InputColor&) = delete;
  InputColor& operator=(const InputColor&) = delete;

 private:
  void write(Color color) const;

  const int descriptor_;
  const bool shown_;
};

// Standard output has failed, or what read it has gone: more text is of no use.
bool output_failed();

// Brings everything out. Returns the exit status of a command that ends with `status`: if standard
// output failed, kOutputClosedStatus where nobody reads it any more, else 5 instead of 0, with a
// message.
int finish_output(int status);

}  // namespace walsh::cli
