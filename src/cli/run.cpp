// `walsh run MODEL -p TEXT`: completes a text; without a prompt it completes lines as they are
// typed.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/line_reader.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "io/mapped_file.h"
#include "walsh/engine.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

constexpr uint64_t kMaxPromptBytes = uint64_t{64} << 20;
constexpr uint64_t kMaxGrammarBytes = uint64_t{1} << 20;

struct Options {
  ModelOptions model;
  std::string prompt, prompt_file;
  int64_t ctx = 0;
  GenerationOptions generation;
  bool stream = true, hide_prompt = false, quiet = false;
  std::string grammar_file, schema_file;
  const CLI::Option *prompt_option = nullptr, *file_option = nullptr;
};

bool given(const CLI::Option* option) {
  return option->count() > 0;
}

// One model that completes one prompt after the other.
class Completer {
 public:
  Completer(Engine engine, const Options& options, double load_seconds)
      : engine_(std::move(engine)), options_(options), load_seconds_(load_seconds) {}

  GenerationResult complete(const std::string& prompt) {
    // Before the prompt is shown.
    const std::vector<int32_t> tokens = engine_.encode_prompt(prompt);
    if (static_cast<int64_t>(tokens.size()) > engine_.context()) {
      throw Error(ErrorCode::usage, "context",
                  fmt::format("the prompt has {} tokens, {} positions are there", tokens.size(),
                              engine_.context()));
    }
    if (!options_.hide_prompt) write_model_text(prompt);
    const auto emit = [&](std::string_view piece) {
      if (options_.stream) write_model_text(std::string(piece));
      return !InterruptGuard::requested() && !output_failed();
    };
    GenerationResult result;
    try {
      result = engine_.generate(tokens, options_.generation, emit);
    } catch (...) {  // as when the user stops it before the first token
      if (!options_.hide_prompt) write_model_text("\n");
      throw;
    }
    write_model_text((options_.stream ? "" : result.text) + "\n");
    return result;
  }

  void print_footer(const GenerationResult& r) const {
    if (options_.quiet) return;
    const char* reasons[] = {"end of text", "-n reached", "context full", "stopped"};
    message(
        "\nload {:.2f} s | prompt {} tokens, {:.2f} s, {:.1f} tokens/s | generated {} tokens,"
        " {:.2f} s, {:.1f} tokens/s | {} | seed {}\n",
        load_seconds_, r.prompt_tokens, r.prompt_seconds, rate(r.prompt_tokens, r.prompt_seconds),
        r.tokens, r.decode_seconds, rate(r.decoded_tokens, r.decode_seconds),
        reasons[static_cast<size_t>(r.reason)], r.seed);
  }

 private:
  static double rate(int64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  }

  Engine engine_;
  const Options& options_;
  const double load_seconds_;
};

// What is wrong with one line, as one that does not fit into the context, is no reason to end.
void complete_line(Completer& completer, const std::string& line, int& status) {
  try {
    completer.print_footer(completer.complete(line));
  } catch (const Error& e) {
    if (e.code() == ErrorCode::interrupted) return;
    if (e.code() != ErrorCode::usage && e.code() != ErrorCode::limit) throw;
    status = report(e);
  }
}

std::optional<std::string> next_line(LineReader& lines, int& status) {
  for (;;) {
    try {
      return lines.next();
    } catch (const Error& e) {
      if (e.code() == ErrorCode::interrupted) return std::nullopt;
      if (e.code() != ErrorCode::limit) throw;
      status = report(e);
    }
  }
}

// The status is that of the last line that was refused.
int interactive(Completer& completer) {
  const bool terminal = is_terminal(STDIN_FILENO);
  if (terminal) {
    message("Completes each line; Ctrl-C stops a completion, Ctrl-D or /exit ends.\n");
  }
  LineReader lines(kMaxPromptBytes);
  int status = 0;
  while (!InterruptGuard::requested() && !output_failed()) {
    if (terminal) message("> ");
    const std::optional<std::string> line = next_line(lines, status);
    if (!line || *line == "/exit") break;
    if (line->empty()) continue;
    complete_line(completer, *line, status);
    InterruptGuard::reset();
  }
  return InterruptGuard::requested() ? exit_status(ErrorCode::interrupted) : status;
}

int run(Options options) {
  options.model.machine.apply();
  const InterruptGuard interrupt;
  std::string prompt = options.prompt;
  if (given(options.file_option)) prompt = read_text_input(options.prompt_file, kMaxPromptBytes);
  if (!options.grammar_file.empty())
    options.generation.grammar = read_text_input(options.grammar_file, kMaxGrammarBytes);
  if (!options.schema_file.empty())
    options.generation.json_schema = read_text_input(options.schema_file, kMaxGrammarBytes);
  const Stopwatch watch;
  Engine engine = options.model.open_engine({.positions = options.ctx}, options.generation);
  Completer completer(std::move(engine), options, watch.seconds());
  if (!given(options.prompt_option) && !given(options.file_option)) return interactive(completer);
  completer.print_footer(completer.complete(prompt));
  return InterruptGuard::requested() ? exit_status(ErrorCode::interrupted) : 0;
}

void add_sampling(CLI::App& command, GenerationOptions& options) {
  const auto add = [&](const std::string& name, auto& value, const std::string& text) {
    command.add_option(name, value, text)->group("Sampling (default: the model's own)");
  };
  add("--temp", options.temperature, "Temperature; 0: always the best token [else 0.8]");
  add("--top-k", options.top_k, "Only the k best tokens; 0: all [else 40]");
  add("--top-p", options.top_p, "Only the best tokens with this probability; 1: all [else 0.95]");
  add("--min-p", options.min_p,
      "Only tokens with this share of the best one's probability; 0: all [else 0.05]");
  add("--repeat-penalty", options.repeat_penalty, "1: none [else 1]");
  add("--presence-penalty", options.presence_penalty,
      "Taken from the logits of tokens that were generated");
  add("--frequency-penalty", options.frequency_penalty, "The same for each time");
  add("--repeat-last-n", options.repeat_last_n,
      "Latest tokens that the penalty is for, with those of the prompt; 0: none, -1: all [-1]");
  add("-s,--seed", options.seed, "Seed [drawn]");
}

}  // namespace

Action add_run(CLI::App& command) {
  const auto options = std::make_shared<Options>();
  options->model.add_to(command);
  options->prompt_option = command.add_option("-p,--prompt", options->prompt, "Text to continue");
  options->file_option =
      command.add_option("-f,--file", options->prompt_file, "File with the text to continue")
          ->type_name("FILE");
  command
      .add_option("-n,--predict", options->generation.max_tokens,
                  "Tokens to generate; 0: none, the prompt is only evaluated; -1: until the end")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 40));
  command.add_option("-c,--ctx", options->ctx, "Context (default: the model's, at most 4096)")
      ->check(CLI::PositiveNumber);
  command.add_flag("--stream,!--no-stream", options->stream, "Show text as it comes (default)");
  command.add_flag("--ignore-eos", options->generation.ignore_eos,
                   "Go on after the end of the text");
  command.add_flag("--no-display-prompt", options->hide_prompt, "Only the new text");
  command.add_flag("-q,--quiet", options->quiet, "No timing footer");
  command
      .add_option("--grammar", options->grammar_file,
                  "File with a grammar in GBNF that the text has to match")
      ->type_name("FILE");
  command
      .add_option("--json-schema", options->schema_file,
                  "File with a JSON schema that the text has to match")
      ->type_name("FILE")
      ->excludes("--grammar");
  add_sampling(command, options->generation);
  return [options] { return run(*options); };
}

}  // namespace walsh::cli
