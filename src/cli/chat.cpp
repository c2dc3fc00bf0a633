#include "cli/chat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "api/engine_access.h"
#include "api/outputs.h"
#include "base/spelling.h"
#include "cli/conversation.h"
#include "cli/interrupt.h"
#include "cli/line_editor.h"
#include "cli/output.h"
#include "cli/prompt_inputs.h"
#include "cli/sampling_options.h"
#include "cli/terminal.h"
#include "io/printable.h"
#include "text/utf8.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

constexpr const char* kQuotes = "\"\"\"";
constexpr const char* kHelpEnd =
    "A line that ends with \\ continues on the next one. \"\"\" begins and ends a text of several\n"
    "lines. // begins a message whose first character is /. Tab completes commands and files.\n"
    "Ctrl-C stops an answer; at the prompt it clears the line, and a second one ends.\n";

// Returns the first word and the rest, trimmed.
std::pair<std::string, std::string> split_word(std::string line) {
  while (line.ends_with(' '))
    line.pop_back();
  const size_t end = line.find(' ');
  const size_t rest = line.find_first_not_of(' ', end);
  return {line.substr(0, end), rest == line.npos ? "" : line.substr(rest)};
}

class Chat {
 public:
  Chat(Engine& engine, ChatSettings settings)
      : engine_(engine),
        settings_(std::move(settings)),
        conversation_(to_valid_utf8(settings_.system)),
        images_(std::move(settings_.images)),
        editor_(settings_.max_bytes, settings_.history,
                [](std::string_view before) { return completions(before); }) {
    settings_.generation.keep_context = true;
  }

  int run() {
    if (is_terminal(STDIN_FILENO) && !settings_.single)
      message(
          "A conversation with a context of {} tokens. /help lists the commands, Ctrl-D or /exit "
          "ends it.\n",
          engine_.context());
    if (!settings_.first.empty()) guarded([&] { ask(settings_.first); });
    if (!settings_.single) InterruptGuard::reset();
    while (!ended_ && !(settings_.single && asked_) && !InterruptGuard::requested() &&
           !output_failed()) {
      const std::optional<std::string> text = listen();
      if (InterruptGuard::requested()) break;
      if (text && !text->empty()) guarded([&] { handle(*text); });
      if (!ended_ && !settings_.single) InterruptGuard::reset();
    }
    return InterruptGuard::requested() ? exit_status(ErrorCode::interrupted) : status_;
  }

 private:
  // Errors in one message or command do not end the conversation. Returns the error's code, if any.
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

  // Reads the next valid message or command. An input that fails counts as ended.
  std::optional<std::string> listen() {
    std::optional<std::string> text;
    const auto wrong = guarded([&] {
      text = read();
      ended_ = !text;
    });
    if (wrong == ErrorCode::io) ended_ = true;
    if (wrong == ErrorCode::interrupted) editor_.goes_on();
    return text;
  }

  // Returns a message or a command; nothing at the end of the input.
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

  struct Command {
    const char *name, *argument, *help;
    void (Chat::*run)(const std::string& rest);
    bool takes_file = false;
  };
  static std::span<const Command> commands() {
    static constexpr Command kCommands[] = {
        {"/clear", "", "forget all messages except the system prompt", &Chat::clear},
        {"/system", "TEXT", "set the system prompt and start over", &Chat::system},
        {"/retry", "", "replace the last answer by another one", &Chat::retry},
        {"/continue", "", "continue the last answer", &Chat::go_on},
        {"/set", "NAME VALUE", "change a flag of walsh run, as in /set temp 0.5", &Chat::set},
        {"/save", "FILE", "save the conversation", &Chat::save, true},
        {"/image", "FILE", "show an image with the next message", &Chat::image, true},
        {"/load", "FILE", "continue a saved conversation", &Chat::load, true},
        {"/help", "", "this list", &Chat::help},
        {"/exit", "", "end; also Ctrl-D, /quit and /bye", &Chat::exit},
        {"/quit", "", "", &Chat::exit},
        {"/bye", "", "", &Chat::exit},
    };
    return kCommands;
  }

  static Completions completions(std::string_view before) {
    Completions found;
    if (!before.starts_with('/')) return found;
    const size_t space = before.find(' ');
    for (const Command& command : commands()) {
      const std::string_view name = command.name;
      if (space == before.npos && name.starts_with(before)) found.words.emplace_back(name);
      if (space == before.npos || name != before.substr(0, space)) continue;
      found.begin = space + 1;
      const std::string typed(before.substr(found.begin));
      if (command.takes_file) found.words = complete_path(typed);
      if (name != "/set" || typed.find(' ') != typed.npos) continue;
      for (const std::string& setting : generation_option_names())
        if (setting.starts_with(typed)) found.words.push_back(setting);
    }
    return found;
  }

  void handle(const std::string& text) {
    if (text.starts_with("//")) return ask(text.substr(1));
    if (!text.starts_with('/')) return ask(text);
    const auto [name, rest] = split_word(text);
    for (const Command& command : commands())
      if (name == command.name) return (this->*command.run)(rest);
    throw Error(ErrorCode::usage, name, "there is no such command, see /help");
  }

  void clear(const std::string&) {
    conversation_.clear();
    images_.clear();
    message("The conversation starts over.\n");
  }

  void system(const std::string& text) {
    conversation_.clear(to_valid_utf8(text));
    message("{}; the conversation starts over.\n",
            text.empty() ? "The system prompt is removed" : "The system prompt is set");
  }

  void help(const std::string&) {
    std::string text;
    for (const Command& command : commands())
      if (*command.help != '\0')
        text += fmt::format("{:<20} {}\n", fmt::format("{} {}", command.name, command.argument),
                            command.help);
    message("{}{}", text, kHelpEnd);
  }

  void exit(const std::string&) { ended_ = true; }

  static const std::string& file_name(const char* command, const std::string& rest) {
    if (!rest.empty()) return rest;
    throw Error(ErrorCode::usage, command, "a file is needed");
  }

  int64_t messages() const { return static_cast<int64_t>(conversation_.size()); }

  void save(const std::string& rest) {
    const std::string& file = file_name("/save", rest);
    check_outputs({file}, model().path, {model().path});  // never overwrites the model
    conversation_.save(file);
    message("saved {} in {}\n", counted(messages(), "message"), file);
  }

  void load(const std::string& rest) {
    const std::string& file = file_name("/load", rest);
    conversation_.load(file);
    message("loaded {} from {}\n", counted(messages(), "message"), file);
  }

  void image(const std::string& rest) {
    const std::string& file = file_name("/image", rest);
    if (!model().images->present())
      throw Error(ErrorCode::usage, "/image", model().images->missing());
    images_.push_back(read_image(file));
    message("the next message has {}\n", counted(std::ssize(images_), "image"));
  }

  void set(const std::string& rest) {
    const auto [name, value] = split_word(rest);
    if (value.empty()) throw Error(ErrorCode::usage, "/set", "a name and a value are needed");
    GenerationOptions changed = settings_.generation;
    set_generation_option(changed, name, value);
    model().generation.sampler(changed);  // refuses values out of range
    settings_.generation = changed;
    message("{} is {}\n", name, value);
  }

  void need_answer(const char* command) const {
    if (conversation_.last_role() != "assistant")
      throw Error(ErrorCode::usage, command, "there is no answer yet");
  }

  void retry(const std::string&) {
    need_answer("/retry");
    unless_it_fails([&] {
      conversation_.take_back();
      answer("");
    });
  }

  void go_on(const std::string&) {
    need_answer("/continue");
    unless_it_fails([&] { answer(conversation_.take_back()); });
  }

  void ask(const std::string& text) {
    asked_ = true;
    // An image that cannot be shown must not come with the next message again.
    const std::vector<std::string> images = std::exchange(images_, {});
    unless_it_fails([&] {
      conversation_.say("user", to_valid_utf8(text), images);  // as any other prompt
      answer("");
    });
  }

  // Undoes the message if `body` fails because it does not fit or the template rejects it.
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

  // Generates the answer to the messages so far, beginning with `begun`. Text before Ctrl-C is
  // kept. When the context is full, the oldest turns are forgotten and the answer continues.
  void answer(std::string begun) {
    const auto emit = [&](std::string_view piece) {
      if (settings_.stream) write_model_text(std::string(piece));
      return !InterruptGuard::requested() && !output_failed();
    };
    GenerationOptions options = settings_.generation;
    std::optional<GenerationResult> all;
    do {
      const std::vector<int32_t> prompt = fitting_prompt(begun, all.has_value());
      options.images = conversation_.images();
      if (settings_.show_tokens && !all) show_tokens(engine_, prompt);
      const GenerationResult part = engine_.generate(prompt, options, emit);
      begun += part.text;
      if (options.max_tokens > 0) options.max_tokens -= part.tokens;
      all = all ? joined(*all, part) : part;
    } while (all->reason == FinishReason::context_full && options.max_tokens != 0 && forget(1));
    write_model_text((settings_.stream ? "" : all->text) + "\n");
    conversation_.say("assistant", begun);
    settings_.footer(*all);
  }

  static GenerationResult joined(GenerationResult all, const GenerationResult& part) {
    all.text += part.text;
    all.reason = part.reason;
    all.tokens += part.tokens;
    all.decode_seconds += part.decode_seconds;
    all.prompt_seconds += part.prompt_seconds;
    all.decoded_tokens += part.decoded_tokens;
    all.drafted += part.drafted;
    all.drafted_right += part.drafted_right;
    return all;
  }

  // Returns how many positions a prompt of the conversation takes.
  int64_t size_of(const Conversation& conversation, std::vector<int32_t> prompt) const {
    std::vector<PromptImage> images;
    const std::vector<std::string> files = conversation.images();
    if (!files.empty()) model().images->show(prompt, files, images);
    return std::ssize(prompt);
  }

  std::vector<int32_t> prompt_of(const Conversation& conversation, const std::string& begun) const {
    return conversation.prompt(*model().chat, settings_.variables, model().tokenizer, begun,
                               model().images.get());
  }

  // Returns the least number of turns without which the prompt has at most `wanted` tokens, or all
  // but the last turn. A prompt with fewer turns is shorter, so the number is found by bisection: a
  // conversation from a file may have any number of turns.
  size_t turns_too_many(const std::string& begun, int64_t wanted) const {
    size_t least = 1, most = conversation_.forgettable_turns();
    while (least < most) {
      const size_t middle = (least + most) / 2;
      Conversation shorter = conversation_;
      shorter.forget_oldest(middle);
      if (size_of(shorter, prompt_of(shorter, begun)) <= wanted)
        most = middle;
      else
        least = middle + 1;
    }
    return least;
  }

  // Returns the prompt, after forgetting old turns if it does not fit: then enough turns go to free
  // a quarter of the context, if possible, so that this does not happen at every turn. `full` says
  // that the context is full and must be freed.
  std::vector<int32_t> fitting_prompt(const std::string& begun, bool full) {
    std::vector<int32_t> prompt = prompt_of(conversation_, begun);
    const int64_t context = engine_.context();
    const auto size = [&] { return size_of(conversation_, prompt); };
    const int64_t wanted = context - context / 4;
    if (size() > (full ? wanted : context) && forget(turns_too_many(begun, wanted)))
      prompt = prompt_of(conversation_, begun);
    if (size() <= context) return prompt;
    throw Error(
        ErrorCode::usage, "context",
        fmt::format("the message has {} tokens with the template around it, but the context "
                    "has room for {}: shorten it, or start with a larger -c",
                    size(), context));
  }

  // Returns false, without effect, if only the last turn is left.
  bool forget(size_t turns) {
    if (conversation_.forgettable_turns() == 0) return false;
    conversation_.forget_oldest(turns);
    if (!told_) {
      print_note(
          fmt::format("the context of {} tokens is full: from now on the oldest messages are "
                      "forgotten, except the system prompt; -c sets its size",
                      engine_.context()));
    }
    told_ = true;
    return true;
  }

  const LoadedModel& model() const { return EngineAccess::model(engine_); }

  Engine& engine_;
  ChatSettings settings_;
  Conversation conversation_;
  std::vector<std::string> images_;  // The next message will have them.
  LineEditor editor_;
  bool ended_ = false, asked_ = false;
  bool told_ = false;  // the user was told that messages are forgotten
  int status_ = 0;
};

}  // namespace

void show_tokens(const Engine& engine, std::span<const int32_t> tokens) {
  message("{} of the prompt\n", counted(std::ssize(tokens), "token"));
  for (const int32_t token : tokens)
    message("{:8} '{}'\n", token, one_line(engine.decode({&token, 1}, false)));
}

int chat(Engine& engine, ChatSettings settings) {
  return Chat(engine, std::move(settings)).run();
}

}  // namespace walsh::cli
