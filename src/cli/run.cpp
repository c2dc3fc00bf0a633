// `walsh run MODEL -p TEXT`: completes a text; without a prompt it completes lines as they are
// typed.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/line_reader.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "generate/generator.h"
#include "io/mapped_file.h"
#include "model/session.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

constexpr uint64_t kMaxPromptBytes = uint64_t{64} << 20;

struct Options {
  ModelOptions model;
  std::string prompt, prompt_file;
  int64_t tokens = 128, ctx = 0;
  SamplerOptions sampler;
  bool stream = true, ignore_eos = false, hide_prompt = false, quiet = false;
  // To tell a flag that was given from a default that the model's own may replace.
  const CLI::Option *prompt_option = nullptr, *file_option = nullptr, *seed_option = nullptr;
  const CLI::Option *temperature = nullptr, *top_k = nullptr, *top_p = nullptr, *min_p = nullptr,
                    *repeat_penalty = nullptr;
};

bool given(const CLI::Option* option) {
  return option->count() > 0;
}

// What the command line leaves open is taken from the model's own files.
GenerateOptions generate_options(const Options& options, const GenerationConfig& model) {
  const GivenOptions is_given = {given(options.temperature), given(options.top_k),
                                 given(options.top_p), given(options.min_p),
                                 given(options.repeat_penalty)};
  GenerateOptions generate;
  generate.sampler = model.sampler(options.sampler, is_given);
  if (!given(options.seed_option)) generate.sampler.seed = std::random_device{}();
  check_sampler_options(generate.sampler);
  generate.max_tokens = options.tokens;
  if (!options.ignore_eos) generate.stop_ids = model.stop_ids();
  return generate;
}

// One model that completes one prompt after the other.
class Completer {
 public:
  Completer(const LoadedModel& model, const Options& options, GenerateOptions generate,
            double load_seconds)
      : model_(model),
        options_(options),
        load_seconds_(load_seconds),
        generate_(std::move(generate)),
        session_(model.model, {.max_positions = options.ctx}) {}

  GenerateResult complete(const std::string& prompt) {
    session_.reset();
    const std::vector<int32_t> tokens = prompt_tokens(prompt);
    // Before the prompt is shown.
    if (static_cast<int64_t>(tokens.size()) > session_.capacity()) {
      throw Error(ErrorCode::usage, "context",
                  fmt::format("the prompt has {} tokens, {} positions are there", tokens.size(),
                              session_.capacity()));
    }
    if (!options_.hide_prompt) write_model_text(prompt);
    // The decoder has to know what stands before the first new token.
    StreamDecoder decoder(model_.tokenizer, true);
    for (const int32_t token : tokens)
      decoder.push(token);
    std::string text;
    const auto emit = [&](std::string piece) {
      options_.stream ? write_model_text(piece) : void(text += piece);
    };
    GenerateResult result;
    try {
      result = generate(session_, tokens, generate_, [&](int32_t token) {
        emit(decoder.push(token));
        return !InterruptGuard::requested() && !output_failed();
      });
    } catch (...) {  // as when the user stops it before the first token
      if (!options_.hide_prompt) write_model_text("\n");
      throw;
    }
    emit(decoder.finish());
    write_model_text(text + "\n");
    return result;
  }

  void print_footer(const GenerateResult& r) const {
    if (options_.quiet) return;
    const char* reasons[] = {"end of text", "-n reached", "context full", "stopped"};
    message(
        "\nload {:.2f} s | prompt {} tokens, {:.2f} s, {:.1f} tokens/s | generated {} tokens,"
        " {:.2f} s, {:.1f} tokens/s | {} | seed {}\n",
        load_seconds_, r.prompt_tokens, r.prompt_seconds, r.prompt_tokens_per_second(),
        r.tokens.size(), r.decode_seconds, r.decode_tokens_per_second(),
        reasons[static_cast<size_t>(r.reason)], generate_.sampler.seed);
  }

 private:
  std::vector<int32_t> prompt_tokens(const std::string& prompt) const {
    std::vector<int32_t> tokens = model_.tokenizer.encode(prompt, true);
    // An empty prompt starts from BOS where the tokenizer adds none.
    if (tokens.empty() && model_.tokenizer.bos()) tokens.push_back(*model_.tokenizer.bos());
    return tokens;
  }

  const LoadedModel& model_;
  const Options& options_;
  const double load_seconds_;
  const GenerateOptions generate_;
  Session session_;
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

int run(const Options& options) {
  options.model.machine.apply();
  const InterruptGuard interrupt;
  std::string prompt = options.prompt;
  if (given(options.file_option)) prompt = read_text_input(options.prompt_file, kMaxPromptBytes);
  ThreadPool pool(options.model.machine.threads);
  const Stopwatch watch;
  GenerateOptions generate;
  ModelUse use{.positions = options.ctx};
  use.before_weights = [&](const GenerationConfig& config) {
    generate = generate_options(options, config);
  };
  const LoadedModel model = options.model.load(use, pool);
  Completer completer(model, options, std::move(generate), watch.seconds());
  if (!given(options.prompt_option) && !given(options.file_option)) return interactive(completer);
  completer.print_footer(completer.complete(prompt));
  return InterruptGuard::requested() ? exit_status(ErrorCode::interrupted) : 0;
}

void add_sampling(CLI::App& command, Options& options) {
  SamplerOptions& s = options.sampler;
  const auto add = [&](const std::string& name, auto& value, const std::string& text) {
    return command.add_option(name, value, text)->group("Sampling")->capture_default_str();
  };
  options.temperature = add("--temp", s.temperature, "Temperature; 0: always the best token");
  options.top_k = add("--top-k", s.top_k, "Only the k best tokens; 0: all");
  options.top_p = add("--top-p", s.top_p, "Only the best tokens with this probability; 1: all");
  options.min_p = add("--min-p", s.min_p, "Only tokens with this share of the best one; 0: all");
  options.repeat_penalty = add("--repeat-penalty", s.repeat_penalty, "1: none");
  add("--repeat-last-n", s.repeat_last_n,
      "Latest tokens that the penalty is for, with those of the prompt; 0: none, -1: all");
  options.seed_option =
      command.add_option("-s,--seed", s.seed, "Seed (default: random)")->group("Sampling");
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
      .add_option("-n,--predict", options->tokens,
                  "Tokens to generate; 0: none, the prompt is only evaluated; -1: until the end")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 40));
  command.add_option("-c,--ctx", options->ctx, "Context (default: the model's, at most 4096)")
      ->check(CLI::PositiveNumber);
  command.add_flag("--stream,!--no-stream", options->stream, "Show text as it comes (default)");
  command.add_flag("--ignore-eos", options->ignore_eos, "Go on after the end of the text");
  command.add_flag("--no-display-prompt", options->hide_prompt, "Only the new text");
  command.add_flag("-q,--quiet", options->quiet, "No timing footer");
  add_sampling(command, *options);
  return [options] { return run(*options); };
}

}  // namespace walsh::cli
