// Lines that a person types, with editing and a history, or that come from a pipe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/line_reader.h"

namespace walsh::cli {

// What may stand in a line from its byte `begin` on, in the place of what was typed there.
struct Completions {
  size_t begin = 0;
  std::vector<std::string> words;
};
// Those of the text in front of the cursor, for the key Tab.
using Completer = std::function<Completions(std::string_view before)>;

// One at a time.
class LineEditor {
 public:
  // Edits where standard input and standard error are a terminal that can do it (TERM), otherwise
  // reads lines as they come. `history` is a file that earlier lines come from and lines go to at
  // the end; empty: none. What is wrong with it is no error.
  LineEditor(size_t max_bytes, std::string history, Completer completer = {});
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // The next line without its end, asked for with `prompt` on a terminal; nothing at the end of the
  // input. Throws as LineReader::next.
  std::optional<std::string> next(const std::string& prompt);
  // After next() has thrown interrupted: whether more lines are wanted, since Ctrl-C at a
  // terminal's prompt takes back what was typed. The second one in a row ends, and so does every
  // other request.
  bool goes_on();

 private:
  class Editor;

  const bool terminal_;
  bool interrupted_ = false;  // behind the last line
  LineReader lines_;
  std::unique_ptr<Editor> editor_;
};

// The completions of a path of which `typed` is there: its files, folders with a slash behind them.
std::vector<std::string> complete_path(const std::string& typed);

// Where the history of this user is kept: XDG_STATE_HOME or ~/.local/state; empty without either.
std::string default_history_file();

}  // namespace walsh::cli
