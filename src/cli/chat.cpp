#include "cli/chat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "api/engine_access.h"
#include "api/outputs.h"
#include "cli/conversation.h"
#include "cli/interrupt.h"
#include "cli/line_editor.h"
#include "cli/output.h"
#include "cli/sampling_options.h"
#include "cli/terminal.h"
#include "io/printable.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

constexpr const char* kQuotes = "\"\"\"";
constexpr const char* kHelp =
    "/clear           begin again          /save FILE  /load FILE   keep the conversation\n"
    "/system TEXT     and begin again      /set NAME VALUE          a flag, as /set temp 0.5\n"
    "/retry           another answer       /exit                    end (or Ctrl-D)\n"
    "A line that ends with \\ goes on in the next one, \"\"\" begins and ends a text of several\n"
    "lines, // says a text that begins with /. Ctrl-C stops an answer.\n";

std::pair<std::string, std::string> split_word(const std::string& line) {
  const size_t end = line.find(' ');
  const size_t rest = line.find_first_not_of(' ', end);
  return {line.substr(0, end), rest == line.npos ? "" : line.substr(rest)};
}

class Chat {
 public:
  Chat(Engine& engine, ChatSettings settings)
      : engine_(engine),
        settings_(std::move(settings)),
        conversation_(settings_.system),
        editor_(settings_.max_bytes, settings_.history) {
    settings_.generation.keep_context = true;
  }

  int run() {
    if (is_terminal(STDIN_FILENO) && !settings_.single)
      message("A conversation; /help tells what can be typed, Ctrl-D or /exit ends it.\n");
    if (!settings_.first.empty()) guarded([&] { ask(settings_.first); });
    while (!ended_ && !(settings_.single && asked_) && !InterruptGuard::requested() &&
           !output_failed()) {
      const std::optional<std::string> text = listen();
      if (InterruptGuard::requested()) break;
      if (text && !text->empty()) guarded([&] { handle(*text); });
      if (!ended_) InterruptGuard::reset();
    }
    return InterruptGuard::requested() ? exit_status(ErrorCode::interrupted) : status_;
  }

 private:
  // What is wrong with one message or command is no reason to end. Returns what was, if anything.
  template <class Body>
  std::optional<ErrorCode> guarded(const Body& body) {
    try {
      body();
      return {};
    } catch (const Error& e) {
      if (e.code() == ErrorCode::internal) throw;
      if (e.code() != ErrorCode::interrupted) status_ = report(e);
      return e.code();
    }
  }

  // The next message or command, if it can be used. An input that fails is at its end.
  std::optional<std::string> listen() {
    std::optional<std::string> text;
    const auto wrong = guarded([&] {
      text = read();
      ended_ = !text;
    });
    if (wrong == ErrorCode::io) ended_ = true;
    return text;
  }

  // A message or a command; nothing at the end of the input.
  std::optional<std::string> read() {
    const InputColor color(STDERR_FILENO, settings_.color);
    std::optional<std::string> line = editor_.next("> ");
    if (!line) return line;
    if (line->starts_with(kQuotes)) return read_quoted(line->substr(3));
    std::string text = *line;
    while (text.ends_with('\\')) {
      text.pop_back();
      line = editor_.next(". ");
      append(text, line.value_or(""));
    }
    return text;
  }

  std::string read_quoted(std::string text) {
    while (!text.ends_with(kQuotes)) {
      const std::optional<std::string> line = editor_.next(". ");
      if (!line) return text;
      append(text, *line);
    }
    return text.substr(0, text.size() - 3);
  }

  void append(std::string& text, const std::string& line) const {
    text += "\n" + line;
    if (text.size() <= settings_.max_bytes) return;
    throw Error(ErrorCode::limit, "standard input",
                fmt::format("a message has more than {} bytes", settings_.max_bytes));
  }

  void handle(const std::string& text) {
    if (text.starts_with("//")) return ask(text.substr(1));
    if (!text.starts_with('/')) return ask(text);
    const auto [name, rest] = split_word(text);
    if (name == "/exit" || name == "/quit" || name == "/bye") {
      ended_ = true;
    } else if (name == "/clear") {
      conversation_.clear();
    } else if (name == "/system") {
      conversation_.clear(rest);
    } else if (name == "/save") {
      save(file_name(name, rest));
    } else if (name == "/load") {
      conversation_.load(file_name(name, rest));
      message("{} messages\n", conversation_.size());
    } else if (name == "/set") {
      const auto [option, value] = split_word(rest);
      set(option, value);
    } else if (name == "/retry") {
      retry();
    } else if (name == "/help") {
      message("{}", kHelp);
    } else {
      throw Error(ErrorCode::usage, name, "there is no such command, see /help");
    }
  }

  static const std::string& file_name(const std::string& command, const std::string& rest) {
    if (!rest.empty()) return rest;
    throw Error(ErrorCode::usage, command, "a file is needed");
  }

  void save(const std::string& file) const {
    check_outputs({file}, model().path, {model().path});  // never over the model
    conversation_.save(file);
  }

  void set(const std::string& name, const std::string& value) {
    if (value.empty()) throw Error(ErrorCode::usage, "/set", "a name and a value are needed");
    GenerationOptions changed = settings_.generation;
    set_generation_option(changed, name, value);
    model().generation.sampler(changed);  // refuses values out of range
    settings_.generation = changed;
  }

  void retry() {
    if (conversation_.last_role() != "assistant")
      throw Error(ErrorCode::usage, "/retry", "there is no answer yet");
    unless_it_fails([&] {
      conversation_.take_back();
      answer();
    });
  }

  void ask(const std::string& text) {
    asked_ = true;
    unless_it_fails([&] {
      conversation_.say("user", text);
      answer();
    });
  }

  // What does not fit, or the template refuses, counts as not said.
  template <class Body>
  void unless_it_fails(const Body& body) {
    const Conversation before = conversation_;
    try {
      body();
    } catch (...) {
      conversation_ = before;
      throw;
    }
  }

  // Behind the messages so far. What was said before Ctrl-C stays.
  void answer() {
    const std::vector<int32_t> prompt =
        conversation_.prompt(*model().chat, settings_.variables, model().tokenizer);
    if (static_cast<int64_t>(prompt.size()) > engine_.context()) {
      throw Error(ErrorCode::usage, "context",
                  fmt::format("the conversation has {} tokens, {} positions are there: /clear, or "
                              "start with a larger -c",
                              prompt.size(), engine_.context()));
    }
    if (settings_.show_tokens) show_tokens(engine_, prompt);
    const auto emit = [&](std::string_view piece) {
      if (settings_.stream) write_model_text(std::string(piece));
      return !InterruptGuard::requested() && !output_failed();
    };
    const GenerationResult result = engine_.generate(prompt, settings_.generation, emit);
    write_model_text((settings_.stream ? "" : result.text) + "\n");
    conversation_.say("assistant", result.text);
    settings_.footer(result);
  }

  const LoadedModel& model() const { return EngineAccess::model(engine_); }

  Engine& engine_;
  ChatSettings settings_;
  Conversation conversation_;
  LineEditor editor_;
  bool ended_ = false, asked_ = false;
  int status_ = 0;
};

}  // namespace

void show_tokens(const Engine& engine, std::span<const int32_t> tokens) {
  message("{} tokens of the prompt\n", tokens.size());
  for (const int32_t token : tokens)
    message("{:8} '{}'\n", token, one_line(engine.decode({&token, 1}, false)));
}

int chat(Engine& engine, ChatSettings settings) {
  return Chat(engine, std::move(settings)).run();
}

}  // namespace walsh::cli
