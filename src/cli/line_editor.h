// Lines that a person types, with editing and a history, or that come from a pipe.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cli/line_reader.h"

namespace walsh::cli {

// One at a time.
class LineEditor {
 public:
  // Edits where standard input and standard error are a terminal that can do it (TERM), otherwise
  // reads lines as they come. `history` is a file that earlier lines come from and lines go to at
  // the end; empty: none. What is wrong with it is no error.
  LineEditor(size_t max_bytes, std::string history);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // The next line without its end, asked for with `prompt` on a terminal; nothing at the end of the
  // input. Throws as LineReader::next.
  std::optional<std::string> next(const std::string& prompt);

 private:
  class Editor;

  const bool terminal_;
  LineReader lines_;
  std::unique_ptr<Editor> editor_;
};

// Where the history of this user is kept: XDG_STATE_HOME or ~/.local/state; empty without either.
std::string default_history_file();

}  // namespace walsh::cli
