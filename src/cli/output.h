// Writes the command's results to standard output and messages to standard error. No function
// throws, and no text of a file can act on the terminal (io/printable.h).
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "walsh/error.h"

namespace walsh::cli {

// A shell reports this status for a program ended by SIGPIPE.
inline constexpr int kOutputClosedStatus = 141;

enum class Color { none, bold, red, yellow, green };

// Returns the escape code that starts a colour, or that ends it for Color::none. It is empty if the
// descriptor is no terminal with colours or NO_COLOR is set.
const char* color_code(int descriptor, Color color);

// Writes a message; failures are ignored, since standard error may be closed, full or a broken
// pipe.
void write_message(std::string_view text);

template <typename... Args>
void message(fmt::format_string<Args...> format, Args&&... args) {
  write_message(fmt::format(format, std::forward<Args>(args)...));
}

// Replaces the last line of a terminal by `text`, which has no control characters.
void redraw_line(std::string_view text);

// Writes a message after a coloured word.
void write_message(Color color, std::string_view word, std::string_view text);

// Prints "walsh: error: WHERE: REASON" on one line; returns the exit status of the code.
int report(const Error& error);

// Prints "walsh: note: TEXT" on standard error, for notes of the library (WeightSource::notes,
// LoadedModel::notes); a failure to write is ignored.
void print_note(const std::string& text);
void print_warning(const std::string& text);  // it prints "walsh: warning: TEXT"
void print_notes(const std::vector<std::string>& texts);

// Writes part of a result, buffered. Errors are kept until finish_output.
void write_result(std::string_view text);

template <typename... Args>
void print_result(fmt::format_string<Args...> format, Args&&... args) {
  write_result(fmt::format(format, std::forward<Args>(args)...));
}

// Writes the program's own text, in which codes of color_code are kept.
void write_help(std::string_view text);

// Writes a model's text immediately; a program that reads it gets it unchanged.
void write_model_text(std::string_view text);

// While a guard exists, text on `descriptor` (standard output or error) is coloured if `wanted` and
// it is a terminal.
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

// Returns whether standard output has failed or its reader has gone, so that more text is useless.
bool output_failed();

// Flushes all output and returns the final exit status for a command that ended with `status`. If
// standard output has failed, that is kOutputClosedStatus where its reader has gone, and otherwise
// 5 in place of 0, with a message.
int finish_output(int status);

}  // namespace walsh::cli
