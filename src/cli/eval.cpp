// `walsh eval MODEL --text FILE` measures perplexity, and with --reference the KL divergence from
// another model.
#include "cli/eval_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>

#include "base/spelling.h"
#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "eval/evaluator.h"
#include "text/text_file.h"
#include "walsh/error.h"
#include "weights/hub_cache.h"

namespace walsh::cli {
namespace {

struct Options {
  ModelOptions model;
  std::string text, reference, base, reference_device, reference_activations = "auto";
  int64_t ctx = 512, chunks = 0, stride = 0;
  bool full = false, json = false, verbose = false;
};

WindowOptions window_options(const Options& options) {
  WindowOptions windows;
  windows.ctx = options.ctx;
  windows.chunks = options.chunks;
  windows.stride = options.stride;
  if (options.full) windows.rule = WindowRule::full;
  if (options.stride > 0) windows.rule = WindowRule::strided;
  return windows;
}

std::string rule_text(const WindowOptions& windows) {
  switch (windows.rule) {
    case WindowRule::second_half:
      return fmt::format("tokens {}..{} of each window", windows.ctx / 2, windows.ctx - 1);
    case WindowRule::full:
      return fmt::format("tokens 1..{} of each window", windows.ctx - 1);
    case WindowRule::strided:
      return fmt::format("stride {}", windows.stride);
  }
  return "";
}

EvalSubject describe(const Options& options, const LoadedModel& model) {
  EvalSubject subject;
  subject.model = options.model.path;
  subject.text = options.text;
  subject.type = model.model.type_name();
  subject.bpw = model.model.bits_per_weight();
  subject.bytes = model.model.model_bytes();
  subject.ctx = options.ctx;
  subject.cache = model.model.cache;
  subject.rule = rule_text(window_options(options));
  return subject;
}

// Refuses flags that a file of log-probabilities answers, and a text that is missing.
void check_text(const Command& command) {
  if (!command.given("--kl-divergence-base")) {
    if (!command.given("--text"))
      throw Error(ErrorCode::usage, "command line", "--text is required");
    return;
  }
  for (const char* flag : {"--text", "--reference", "--ctx", "--stride", "--full"})
    if (command.given(flag))
      throw Error(ErrorCode::usage, flag, "is what the file of --kl-divergence-base says");
}

// Refuses flags that need a reference.
void refuse_without_reference(const Command& command) {
  if (command.given("--reference")) return;
  for (const char* flag : {"--reference-device", "--reference-activations"})
    if (command.given(flag)) throw Error(ErrorCode::usage, flag, "works only with --reference");
}

// Prints a line per window on a terminal, or if asked to.
void report_progress(const Options& options, int64_t tokens, int64_t ctx, bool with_reference,
                     EvalOptions& eval) {
  const bool running = options.verbose || is_terminal(STDERR_FILENO);
  eval.progress = [=](const Evaluation& result, int64_t windows) {
    InterruptGuard::check();
    if (!running) return;
    if (result.windows == 1) {
      message("{}, {} of {}\n{}", counted(tokens, "token"), counted(windows, "chunk"), ctx,
              running_heading(with_reference));
    }
    message("{}", running_line(result));
  };
}

void write_report(const Options& options, const Evaluation& result, EvalSubject subject,
                  const Stopwatch& watch) {
  subject.seconds = watch.seconds();
  write_result(options.json ? eval_json(result, subject) : eval_text(result, subject));
}

// Compares the model with log-probabilities that llama-perplexity wrote.
int compare_with_file(Options options) {
  const StoredLogits base(options.base);
  options.ctx = base.ctx();
  ThreadPool pool(options.model.machine.threads);
  const LoadedModel model = options.model.load({.positions = options.ctx}, pool);
  const Stopwatch watch;
  EvalOptions eval = eval_options(model, window_options(options));
  report_progress(options, base.windows() * base.ctx(), base.ctx(), true, eval);
  const Evaluation result = evaluate(model.model, base, eval);
  EvalSubject subject = describe(options, model);
  subject.text = subject.reference = options.base;
  subject.reference_type = "log-probabilities of llama.cpp";
  subject.rule =
      fmt::format("tokens {}..{} of each window", base.first_position() + 1, base.ctx() - 1);
  write_report(options, result, subject, watch);
  return 0;
}

int evaluate_command(const Options& options) {
  options.model.machine.apply();
  const InterruptGuard interrupt;
  if (!options.base.empty()) return compare_with_file(options);
  check_windows(window_options(options));  // they are checked before the weights are read
  const std::string text = read_utf8_text(options.text);
  ThreadPool pool(options.model.machine.threads);
  const ModelUse use{.positions = options.ctx};
  const LoadedModel model = options.model.load(use, pool);
  const std::vector<int32_t> tokens = model.tokenizer.encode(text, false);
  std::optional<LoadedModel> reference;
  if (!options.reference.empty()) {
    const Device device = options.reference_device.empty() ? options.model.chosen_device()
                                                           : parse_device(options.reference_device);
    reference.emplace(ModelOptions::load_plain(options.reference, device,
                                               parse_activation_mode(options.reference_activations),
                                               use, model.model, pool));
    check_same_tokens(model, *reference, text, tokens);
  }

  const Stopwatch watch;
  EvalOptions eval = eval_options(model, window_options(options));
  report_progress(options, std::ssize(tokens), options.ctx, reference.has_value(), eval);
  const Evaluation result =
      evaluate(model.model, reference ? &reference->model : nullptr, tokens, eval);

  EvalSubject subject = describe(options, model);
  if (reference) {
    subject.reference = reference->path;
    subject.reference_type = reference->model.type_name();
  }
  write_report(options, result, subject, watch);
  return 0;
}

}  // namespace

Action add_eval(Command& command) {
  const auto options = std::make_shared<Options>();
  options->model.add_to(command);
  command.add("-f,--text", &options->text, "Text to measure on", {.value = "FILE"});
  command.add("--kl-divergence-base", &options->base,
              "Compare with log-probabilities that llama-perplexity wrote, on its text",
              {.value = "FILE"});
  command.add("--reference", &options->reference,
              "Compare with this model: a walsh file or a folder, run as it is",
              {.value = "MODEL", .replacement = found_model});
  command.add("--reference-device", &options->reference_device,
              "Device of the reference (default: that of the model)", {.value = "DEVICE"});
  command.add("--reference-activations", &options->reference_activations,
              "Activations of the reference, as in --activations",
              {.shown = true, .choices = activation_modes(), .any_case = true});
  command.add("-c,--ctx", &options->ctx, "Tokens per window", {.shown = true});
  command.add("--chunks", &options->chunks, "Measure at most this many windows (default: all)",
              {.range = between(int64_t{0}, int64_t{1} << 40)});
  const Flag& stride = command.add("--stride", &options->stride,
                                   "Start a window every N tokens; each token is scored once",
                                   {.range = between(int64_t{1}, int64_t{1} << 40)});
  command.add("--full", &options->full,
              "Score all tokens of a window except the first, instead of its second half",
              {.excluded = &stride});
  command.add("--json", &options->json, "Print the result as one JSON object");
  command.add("-v,--verbose", &options->verbose, "Print a line per window on standard error");
  return [options, &command] {
    check_text(command);
    refuse_without_reference(command);
    return evaluate_command(*options);
  };
}

}  // namespace walsh::cli
