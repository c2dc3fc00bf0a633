// Reads lines from a terminal, with editing and a history, or from a pipe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/line_reader.h"

namespace walsh::cli {

// These texts may replace the text of a line from byte `begin` on.
struct Completions {
  size_t begin = 0;
  std::vector<std::string> words;
};
// Returns completions for the text before the cursor (key Tab).
using Completer = std::function<Completions(std::string_view before)>;

// Reads the lines of the user. Only one editor may exist at a time.
class LineEditor {
 public:
  // Edits lines if standard input and standard error are a capable terminal (TERM), otherwise reads
  // them as they come. Earlier lines come from the file `history`, and new lines are added to it;
  // an empty name means none. Errors of this file are ignored.
  LineEditor(size_t max_bytes, std::string history, Completer completer = {});
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Returns the next line without its end, or nothing at the end of the input. A terminal shows
  // `prompt`. Throws as LineReader::next.
  std::optional<std::string> next(const std::string& prompt);
  // Returns whether to continue after next() has thrown interrupted. Ctrl-C at a terminal's prompt
  // discards the typed line; a second one in a row ends, and so does any other request.
  bool goes_on();

 private:
  class Editor;

  const bool terminal_;
  bool interrupted_ = false;  // it tells of the last line
  LineReader lines_;
  std::unique_ptr<Editor> editor_;
};

// Returns the files and the folders, with a slash, that complete the path `typed`.
std::vector<std::string> complete_path(const std::string& typed);

// Returns the user's history file in XDG_STATE_HOME or ~/.local/state, or an empty path if neither
// is known.
std::string default_history_file();

}  // namespace walsh::cli
