// `walsh run MODEL -p TEXT` generates text. Without -p it holds a conversation or, if the model has
// no chat template, completes lines as they are typed.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/engine_access.h"
#include "api/load.h"
#include "api/outputs.h"
#include "api/text_request.h"
#include "base/spelling.h"
#include "base/thread_pool.h"
#include "cli/chat.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/line_editor.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/prompt_inputs.h"
#include "cli/sampling_options.h"
#include "cli/template_options.h"
#include "cli/terminal.h"
#include "io/mapped_file.h"
#include "text/chat_template.h"
#include "walsh/engine.h"
#include "walsh/error.h"
#include "weights/finite.h"

namespace walsh::cli {
namespace {

constexpr uint64_t kMaxPromptBytes = uint64_t{64} << 20;
constexpr uint64_t kMaxGrammarBytes = uint64_t{1} << 20;

struct Options {
  ModelOptions model;
  TemplateOptions chat;
  std::string prompt, prompt_file;
  int64_t ctx = 0;
  GenerationOptions generation;
  std::string system, history = default_history_file();
  bool conversation = false, single_turn = false;
  bool stream = true, hide_prompt = false, quiet = false;
  bool color = true, show_tokens = false, escapes = false;
  std::string grammar, schema;
  std::vector<std::string> images;  // They are paths of files.
  const Command* command = nullptr;
};

double rate(int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

void print_footer(const GenerationResult& r, double load_seconds) {
  const char* reasons[] = {"end of text", "-n reached", "context full", "stopped"};
  const std::string drafts =
      r.drafted == 0 ? "" : fmt::format(" ({} of {} drafted)", r.drafted_right, r.drafted);
  const std::string known = r.cached_tokens == 0 ? "" : fmt::format(" ({} known)", r.cached_tokens);
  message(
      "\nload {:.2f} s | prompt {}{}, {:.2f} s, {:.1f} tokens/s | generated {}{},"
      " {:.2f} s, {:.1f} tokens/s | {} | seed {}\n",
      load_seconds, counted(r.prompt_tokens, "token"), known, r.prompt_seconds,
      rate(r.prompt_tokens - r.cached_tokens, r.prompt_seconds), counted(r.tokens, "token"), drafts,
      r.decode_seconds, rate(r.decoded_tokens, r.decode_seconds),
      reasons[static_cast<size_t>(r.reason)], r.seed);
}

// Completes prompts one after the other.
class Completer {
 public:
  Completer(Engine engine, const Options& options, double load_seconds)
      : engine_(std::move(engine)), options_(options), load_seconds_(load_seconds) {}

  GenerationResult complete(const std::string& prompt) {
    // Tokenizes first, so that errors come before the prompt is shown.
    const std::vector<int32_t> tokens =
        prompt_tokens(EngineAccess::model(engine_), prompt, options_.generation);
    if (static_cast<int64_t>(tokens.size()) > engine_.context()) {
      throw Error(ErrorCode::usage, "context",
                  fmt::format("the prompt has {}, but the context has room for {}",
                              counted(std::ssize(tokens), "token"), engine_.context()));
    }
    if (options_.show_tokens) show_tokens(engine_, tokens);
    if (!options_.hide_prompt) {
      const InputColor color(STDOUT_FILENO, options_.color);
      write_model_text(prompt);
    }
    const auto emit = [&](std::string_view piece) {
      if (options_.stream) write_model_text(std::string(piece));
      return !InterruptGuard::requested() && !output_failed();
    };
    GenerationResult result;
    try {
      result = engine_.generate(tokens, options_.generation, emit);
    } catch (...) {  // as if the user stopped it before the first token
      if (!options_.hide_prompt) write_model_text("\n");
      throw;
    }
    write_model_text((options_.stream ? "" : result.text) + "\n");
    return result;
  }

  void print_footer(const GenerationResult& r) const {
    if (options_.quiet) return;
    walsh::cli::print_footer(r, load_seconds_);
  }

 private:
  Engine engine_;
  const Options& options_;
  const double load_seconds_;
};

// An error in one line, such as one that exceeds the context, does not end the command.
void complete_line(Completer& completer, const std::string& line, int& status) {
  try {
    completer.print_footer(completer.complete(line));
  } catch (const Error& e) {
    if (e.code() == ErrorCode::interrupted) return;
    if (e.code() != ErrorCode::usage && e.code() != ErrorCode::limit) throw;
    status = report(e);
  }
}

std::optional<std::string> next_line(LineEditor& lines, int& status) {
  for (;;) {
    try {
      return lines.next("> ");
    } catch (const Error& e) {
      if (e.code() == ErrorCode::interrupted && lines.goes_on()) continue;
      if (e.code() == ErrorCode::interrupted) return std::nullopt;
      if (e.code() != ErrorCode::limit) throw;
      status = report(e);
    }
  }
}

// Returns the exit status of the last line that was refused.
int interactive(Completer& completer, const std::string& history) {
  if (is_terminal(STDIN_FILENO))
    message("Completes each line; Ctrl-C stops a completion, Ctrl-D or /exit ends.\n");
  LineEditor lines(kMaxPromptBytes, history);
  int status = 0;
  while (!InterruptGuard::requested() && !output_failed()) {
    const std::optional<std::string> line = next_line(lines, status);
    if (!line || *line == "/exit") break;
    if (line->empty()) continue;
    complete_line(completer, *line, status);
    InterruptGuard::reset();
  }
  return InterruptGuard::requested() ? exit_status(ErrorCode::interrupted) : status;
}

// Checks the template before the weights are read, if a conversation is wanted.
void check_template(const Options& options) {
  if (!options.command->given("--cnv") || !options.conversation || options.chat.text()) return;
  ThreadPool pool(1);
  const auto source = open_weights(options.model.path, nullptr, pool);
  try {
    ChatTemplate::from_files(source->tokenizer_config_json(), {});
  } catch (const Error& e) {
    throw Error(e.code(), options.model.path + ": " + e.where(), e.reason());
  }
}

// Returns whether to hold a conversation: a prompt is a message if the model has a chat template;
// an empty one is none.
bool wants_conversation(const Options& options, const std::string& prompt,
                        const LoadedModel& model) {
  const bool text =
      !prompt.empty() || !(options.command->given("--prompt") || options.command->given("--file"));
  const bool asked = options.command->given("--cnv");
  const bool wanted = asked ? options.conversation : model.chat.has_value() && text;
  if (wanted && !model.chat)
    throw Error(ErrorCode::usage, "-cnv", "the model has no chat template that walsh can use");
  if (!wanted && (options.command->given("--sys") || options.single_turn)) {
    throw Error(ErrorCode::usage, "-sys, -st",
                asked ? "are for conversations: leave --raw and -no-cnv out"
                      : "are for conversations, and the model has no chat template");
  }
  return wanted;
}

// Notes flags that have no effect on what will be generated.
void tell_idle_flags(const Options& options, bool conversation) {
  if (!conversation && options.chat.given())
    print_note(
        "the flags of chat templates change nothing: the text is continued without a template");
  for (const std::string& note : idle_sampling_flags(options.generation))
    print_note(note);
}

int hold_conversation(Engine& engine, const Options& options, const std::string& prompt,
                      double load_seconds) {
  ChatSettings settings;
  settings.generation = options.generation;
  settings.system = options.system;
  settings.first = prompt;
  settings.images = std::move(settings.generation.images);
  // With -p there is one answer, unless -cnv asks for more.
  settings.single = options.single_turn || (!prompt.empty() && !options.command->given("--cnv"));
  if (!options.command->given("--n-predict")) settings.generation.max_tokens = -1;
  settings.stream = options.stream;
  settings.history = options.history;
  settings.variables = options.chat.variables();
  settings.color = options.color;
  settings.show_tokens = options.show_tokens;
  settings.max_bytes = kMaxPromptBytes;
  settings.footer = [&, load_seconds](const GenerationResult& result) {
    if (!options.quiet) print_footer(result, load_seconds);
  };
  return chat(engine, std::move(settings));
}

// Returns the grammar or schema that was given as text or as a file; empty: none.
std::string read_rules(const std::string& given, bool is_text) {
  if (given.empty() || is_text) return given;
  std::string rules = read_text_input(given, kMaxGrammarBytes);
  if (rules.empty()) throw Error(ErrorCode::bad_input, given, "is empty");
  return rules;
}

// llama.cpp's flags of these names take the text itself, which a file name never looks like.
void read_rules(Options& options) {
  const std::string &grammar = options.grammar, &schema = options.schema;
  options.generation.grammar = read_rules(grammar, grammar.find("::=") != std::string::npos);
  const size_t first = schema.find_first_not_of(" \t\r\n");
  const bool is_schema = first != std::string::npos && schema[first] == '{';
  options.generation.json_schema = read_rules(schema, is_schema);
}

// The history must not be the model's file, since lines would be written over it. Something that is
// no file means no history.
void check_history(const Options& options) {
  std::error_code none;
  if (std::filesystem::is_regular_file(options.history, none))
    check_outputs({options.history}, options.model.path, {options.model.path});
}

// A damaged tensor is the likeliest cause of logits that are not finite: it is named then.
void find_damage(const std::string& path) {
  ThreadPool pool(1);
  check_finite(*open_weights(path, nullptr, pool));
}

int run(Options options) {
  options.model.machine.apply();
  check_history(options);
  const InterruptGuard interrupt;
  std::string prompt = options.prompt;
  if (options.escapes) {
    prompt = unescaped(prompt);
    options.system = unescaped(options.system);
  }
  if (options.command->given("--file"))
    prompt = read_text_input(options.prompt_file, kMaxPromptBytes);
  read_rules(options);
  options.generation.images = read_images(options.images);
  options.generation.lookup = options.model.looks_up();
  options.chat.variables();  // refuses anything but an object before any work
  const std::optional<TemplateText> chat = options.chat.text();
  const Stopwatch watch;
  check_template(options);
  const int64_t positions = options.ctx == 0 ? kFittingPositions : options.ctx;
  Engine engine = options.model.open_engine({.positions = positions}, options.generation,
                                            chat ? &*chat : nullptr);
  const LoadedModel& model = EngineAccess::model(engine);
  if (!options.images.empty() && !model.images->present())
    throw Error(ErrorCode::usage, "--image", model.images->missing());
  const bool conversation = wants_conversation(options, prompt, model);
  tell_idle_flags(options, conversation);
  if (conversation) return hold_conversation(engine, options, prompt, watch.seconds());
  Completer completer(std::move(engine), options, watch.seconds());
  if (!options.command->given("--prompt") && !options.command->given("--file"))
    return interactive(completer, options.history);
  completer.print_footer(completer.complete(prompt));
  return InterruptGuard::requested() ? exit_status(ErrorCode::interrupted) : 0;
}

void add_text_options(Command& command, Options& options) {
  const Flag& prompt =
      command.add("-p,--prompt", &options.prompt,
                  "Message to answer; with --raw, or without a chat template, text to continue");
  command.add("-f,--file", &options.prompt_file, "Read the prompt from this file",
              {.value = "FILE", .excluded = &prompt});
  command.add(
      "--image", &options.images,
      "Show this image (JPEG, PNG, WebP) with the first message; may be repeated. With --raw "
      "the prompt has the model's placeholder for each",
      {.value = "FILE"});
  command.add("-c,--ctx,--ctx-size", &options.ctx,
              "Context in tokens; 0: the model's, limited by memory",
              {.shown = true, .range = between(int64_t{0}, int64_t{1} << 40)});
  command.add("--stream,!--no-stream", &options.stream, "Print text as it is generated (default)");
  command.add("--no-display-prompt", &options.hide_prompt, "Do not repeat the prompt");
  command.add("-e,--escape,!--no-escape", &options.escapes,
              "In -p and -sys \\n, \\r, \\t, \\\\ and \\xHH stand for characters");
  command.add("--verbose-prompt", &options.show_tokens,
              "Print the tokens of the prompt to standard error");
  command.add("--color,!--no-color", &options.color,
              "Colour typed text on a terminal (default, unless NO_COLOR is set)");
  command.add("-q,--quiet,!--timings", &options.quiet,
              "Do not print timings; --timings: print them (default)");
  const Flag& grammar = command.add(
      "--grammar,--grammar-file", &options.grammar,
      "The text must match this grammar (GBNF), given as text or file", {.value = "FILE"});
  command.add("-j,--json-schema,--json-schema-file", &options.schema,
              "The text must match this JSON schema, given as text or file",
              {.value = "FILE", .excluded = &grammar});
  options.model.add_speculation_to(command.group("Options"));
}

void add_conversation_options(Command& command, Options& options) {
  command.add(
      "--cnv,--conversation,!--no-cnv,!--no-conversation,!--raw", &options.conversation,
      "-cnv: -p begins a conversation. --raw, -no-cnv: continue the text as it is, without the "
      "chat template");
  command.add("--sys,--system-prompt", &options.system, "System prompt; also -sys");
  command.add("--st,--single-turn", &options.single_turn, "Stop after the first answer");
  command.add("--history", &options.history, "File that keeps the lines you type; empty: keep none",
              {.value = "FILE"});
  options.chat.add_to(command);
}

}  // namespace

Action add_run(Command& command) {
  const auto options = std::make_shared<Options>();
  options->command = &command;
  options->model.add_to(command);
  add_text_options(command, *options);
  add_conversation_options(command, *options);
  Flag& tokens = add_generation_options(command, options->generation);
  tokens.initial.clear();
  tokens.help =
      "Tokens to generate, at most; 0: none, the prompt is only evaluated; -1: until the end [a "
      "conversation: -1, else 128]";
  return [options] {
    try {
      return run(*options);
    } catch (const Error& e) {
      if (e.code() == ErrorCode::bad_input && e.where() == "logits")
        find_damage(options->model.path);
      throw;
    }
  };
}

}  // namespace walsh::cli
