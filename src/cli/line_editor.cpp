#include "cli/line_editor.h"

#include <histedit.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string_view>
#include <utility>

#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "io/descriptor.h"
#include "io/system_error.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

constexpr const char* kWhere = "standard input";
constexpr int kHistoryLines = 1000;

bool can_edit() {
  const char* term = std::getenv("TERM");
  if (term == nullptr || *term == '\0' || std::string_view(term) == "dumb") return false;
  return is_terminal(STDIN_FILENO) && is_terminal(STDERR_FILENO);
}

// libedit would read such a file to its end, which a device or a pipe may not have. A history that
// is linked to /dev/null means that none is wanted.
std::string history_of(std::string file) {
  std::error_code ignored;
  const auto status = std::filesystem::status(file, ignored);
  const bool usable = std::filesystem::is_regular_file(status) || !std::filesystem::exists(status);
  return usable ? std::move(file) : std::string();
}

// Returns the length of a UTF-8 character from its first byte, or 0 if no character begins with it.
int utf8_length(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return 2;
  if (first >= 0xE0 && first < 0xF0) return 3;
  return first >= 0xF0 && first < 0xF5 ? 4 : 0;
}

}  // namespace

// Uses libedit with our own reading of bytes, so that a stop request ends the wait for a key.
class LineEditor::Editor {
 public:
  Editor(std::string file, Completer completer)
      : file_(history_of(std::move(file))), completer_(std::move(completer)) {
    // libedit needs it for characters and their widths.
    std::setlocale(LC_CTYPE, "C.UTF-8");
    edit_ = el_init("walsh", stdin, stderr, stderr);
    history_ = history_init();
    if (edit_ == nullptr || history_ == nullptr) {
      close();
      throw Error(ErrorCode::io, "terminal", "the line editor cannot be started");
    }
    HistEvent event;
    history(history_, &event, H_SETSIZE, kHistoryLines);
    history(history_, &event, H_SETUNIQUE, 1);
    if (!file_.empty()) history(history_, &event, H_LOAD, file_.c_str());
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_PROMPT, &Editor::prompt);
    el_set(edit_, EL_HIST, history, history_);
    el_set(edit_, EL_GETCFN, &Editor::read_key);
    el_set(edit_, EL_ADDFN, "walsh-complete", "Complete a word", &Editor::complete);
    for (const auto& [keys, what] : {std::pair{"^R", "em-inc-search-prev"},
                                     {"^I", "walsh-complete"},
                                     {"\\e[3~", "ed-delete-next-char"},
                                     {"\\e[1;5C", "em-next-word"},
                                     {"\\e[1;5D", "ed-prev-word"}})
      el_set(edit_, EL_BIND, keys, what, nullptr);
  }
  ~Editor() {
    save();
    close();
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  std::optional<std::string> next(const std::string& prompt) {
    prompt_ = prompt;
    failure_ = nullptr;
    int count = 0;
    el_resize(edit_);
    el_set(edit_, EL_PREP_TERM, 1);  // el_gets would do so only after the prompt
    const char* text = el_gets(edit_, &count);
    if (failure_) {
      message("\n");
      std::rethrow_exception(failure_);
    }
    if (text == nullptr || count <= 0) return std::nullopt;
    std::string line(text);
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r'))
      line.pop_back();
    HistEvent event;
    if (!line.empty()) history(history_, &event, H_ENTER, line.c_str());
    return line;
  }

 private:
  static Editor& of(EditLine* edit) {
    void* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return *static_cast<Editor*>(self);
  }
  static char* prompt(EditLine* edit) { return of(edit).prompt_.data(); }

  // The common prefix of all completions is inserted; if there is none, they are listed.
  static unsigned char complete(EditLine* edit, int) {
    Editor& self = of(edit);
    const LineInfo* line = el_line(edit);
    const std::string before(line->buffer, line->cursor);
    const Completions found = self.completer_ ? self.completer_(before) : Completions();
    if (found.words.empty()) return CC_ERROR;
    std::string common = found.words.front();
    for (const std::string& word : found.words)
      common.resize(static_cast<size_t>(
          std::mismatch(common.begin(), common.end(), word.begin(), word.end()).first -
          common.begin()));
    if (found.words.size() == 1 && !common.ends_with('/')) common += ' ';
    const std::string typed = before.substr(found.begin);
    if (common.size() > typed.size() && common.starts_with(typed)) {
      el_insertstr(edit, common.c_str() + typed.size());
      return CC_REFRESH;
    }
    std::string list = "\n";
    for (const std::string& word : found.words)
      list += word + "  ";
    message("{}\n", list);
    return CC_REDISPLAY;
  }

  // Reads one character. Returns 0 at the end of the input, and -1 for an error, which is stored.
  static int read_key(EditLine* edit, wchar_t* key) {
    Editor& self = of(edit);
    try {
      return self.read_character(*key);
    } catch (...) {
      self.failure_ = std::current_exception();
      return -1;
    }
  }

  static int read_byte(unsigned char& byte) {
    for (;;) {
      wait_readable(STDIN_FILENO, kWhere);
      const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
      if (got >= 0) return static_cast<int>(got);
      if (errno == EIO) return 0;  // the terminal is gone
      if (errno != EINTR && errno != EAGAIN) throw_system_error(kWhere, "read", errno);
    }
  }

  static int read_character(wchar_t& key) {
    unsigned char byte = 0;
    if (read_byte(byte) == 0) return 0;
    const int length = utf8_length(byte);
    if (length <= 1) {
      key = length == 1 ? static_cast<wchar_t>(byte) : L'\uFFFD';
      return 1;
    }
    wchar_t code = static_cast<wchar_t>(byte & (0x7F >> length));
    for (int i = 1; i < length; ++i) {
      if (read_byte(byte) == 0) return 0;
      code = static_cast<wchar_t>((code << 6) | (byte & 0x3F));
    }
    key = code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? L'\uFFFD' : code;
    return 1;
  }

  // The file is readable by its owner only; libedit sets the mode.
  void save() {
    if (file_.empty()) return;
    std::error_code ignored;
    const std::filesystem::path folder = std::filesystem::path(file_).parent_path();
    if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
    HistEvent event;
    history(history_, &event, H_SAVE, file_.c_str());
  }
  void close() {
    if (edit_ != nullptr) el_end(edit_);
    if (history_ != nullptr) history_end(history_);
  }

  const std::string file_;
  const Completer completer_;
  EditLine* edit_ = nullptr;
  History* history_ = nullptr;
  std::string prompt_;
  std::exception_ptr failure_;
};

LineEditor::LineEditor(size_t max_bytes, std::string history, Completer completer)
    : terminal_(is_terminal(STDIN_FILENO)), lines_(max_bytes) {
  if (can_edit()) editor_ = std::make_unique<Editor>(std::move(history), std::move(completer));
}

LineEditor::~LineEditor() = default;

std::optional<std::string> LineEditor::next(const std::string& prompt) {
  if (terminal_ && !editor_) message("{}", prompt);
  std::optional<std::string> line = editor_ ? editor_->next(prompt) : lines_.next();
  interrupted_ = false;
  return line;
}

bool LineEditor::goes_on() {
  if (!terminal_ || interrupted_) return false;
  interrupted_ = true;
  InterruptGuard::reset();
  if (InterruptGuard::requested()) return false;
  message("(Ctrl-C again, Ctrl-D or /exit ends)\n");
  return true;
}

std::vector<std::string> complete_path(const std::string& typed) {
  constexpr size_t kMost = 200;
  const size_t slash = typed.rfind('/');
  const std::string folder = slash == typed.npos ? "" : typed.substr(0, slash + 1);
  const std::string begun = typed.substr(folder.size());
  std::vector<std::string> found;
  std::error_code failed;
  std::filesystem::directory_iterator entry(folder.empty() ? "." : folder, failed);
  for (; !failed && entry != std::filesystem::directory_iterator() && found.size() < kMost;
       entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(begun) || (name.starts_with('.') && begun.empty())) continue;
    std::error_code unreadable;
    found.push_back(folder + name + (entry->is_directory(unreadable) ? "/" : ""));
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string default_history_file() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string state = variable("XDG_STATE_HOME"), home = variable("HOME");
  if (state.starts_with('/')) return state + "/walsh/history";
  return home.starts_with('/') ? home + "/.local/state/walsh/history" : "";
}

}  // namespace walsh::cli
