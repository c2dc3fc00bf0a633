#include "cli/allocate_options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "base/spelling.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

constexpr int64_t kWindow = 512;

// Shows the stage, the share that is done and the time left. Without a terminal it writes one line
// per stage.
class StageProgress {
 public:
  StageProgress() : terminal_(is_terminal(STDERR_FILENO)), bar_(terminal_) {}

  void update(const std::string& stage, int64_t done, int64_t total) {
    InterruptGuard::check();
    if (stage != stage_) {
      stage_ = stage;
      watch_ = {};
      if (!terminal_) message("{}\n", stage);
    }
    bar_.update(static_cast<uint64_t>(done), static_cast<uint64_t>(std::max<int64_t>(total, 1)),
                stage + left(done, total));
  }

 private:
  std::string left(int64_t done, int64_t total) const {
    constexpr double kWorthTelling = 10;
    if (done == 0) return "";
    const double seconds =
        watch_.seconds() * static_cast<double>(total - done) / static_cast<double>(done);
    return seconds < kWorthTelling ? "" : ", " + human_seconds(seconds) + " left";
  }

  bool terminal_;
  ProgressBar bar_;
  std::string stage_;
  Stopwatch watch_;
};

std::string measured_line(const char* what, const MeasuredRecipe& r) {
  return fmt::format("{:<10} {:>7.4f} {:>12.5f} {:>12.5f} {:>12.5f} {:>21}\n", what,
                     r.bits_per_weight, r.linear, r.predicted, r.searched.value,
                     fmt::format("{:.5f} +- {:.5f}", r.verified.value, r.verified.error));
}

// Returns a text such as "allocation takes about 3 min and 120 MiB beside the model: ...".
std::string cost_text(const AllocationCost& cost) {
  const std::string alone =
      cost.alone > 0 ? counted(cost.alone, "measurement") + " of single tensors and " : "";
  const std::string text =
      cost.steps > 0 ? "a text of its own in " + counted(cost.steps, "step") + ", " : "";
  return fmt::format(
      "the allocation takes about {} and {} beside the model: {}{}at most {} of it all",
      human_seconds(cost.seconds), human_bytes(cost.bytes), text, alone,
      counted(cost.whole, "measurement"));
}

Json measured_json(const MeasuredRecipe& r) {
  return {{"bits_per_weight", r.bits_per_weight},
          {"linear_prediction", r.linear},
          {"prediction", r.predicted},
          {"kld_searched", r.searched.value},
          {"kld", r.verified.value},
          {"kld_stderr", r.verified.error}};
}

double gain(const Allocation& a) {
  return a.allocated.verified.value / a.equal.verified.value - 1;
}

}  // namespace

void AllocateFlags::add_to(Command& command) {
  const FlagGroup group = command.group("Allocation: a type for every tensor");
  const Flag& bpw =
      group.add("--bpw", &bits_,
                "Choose a type for every tensor: average bits per weight of the linear layers",
                {.value = "BITS", .range = between(1.0, 16.0)});
  group.add("--size", &size_,
            "Choose a type for every tensor: size of the whole file, such as 3.0GiB",
            {.value = "SIZE", .excluded = &bpw});
  const auto add = [&](const char* name, const Target& target, const std::string& text,
                       FlagRules rules = {}) {
    const Flag& flag = group.add(name, target, text, std::move(rules));
    refinements_.push_back(&flag);
    return &flag;
  };
  add("--candidates", &candidates_, "Types to choose from (default: tc2 to tc4, tq4+2 and tq4+4)",
      {.value = "TYPES", .at_commas = true});
  add("--allocate-text", &text_, "Text to measure with (default: the model generates one)",
      {.value = "FILE"});
  add("--allocate-tokens", &tokens_,
      "Tokens for the search; the result is checked on as many others",
      {.shown = true, .range = between(512, 1 << 24)});
  add("--sensitivity", &sensitivity_, "File for the measured sensitivities, which later runs reuse",
      {.value = "FILE"});
  add("--allocate-evals", &evaluations_,
      "Variations of the first choice to measure on the whole model",
      {.shown = true, .range = between(0, 1000)});
}

void AllocateFlags::refuse_without_target() const {
  if (given()) return;
  for (const Flag* flag : refinements_) {
    if (flag->given())
      throw Error(ErrorCode::usage, flag->name(), "works only with --bpw or --size");
  }
}

// An existing sensitivity file is read, otherwise it is written.
bool AllocateFlags::knows_sensitivity() const {
  std::error_code unreadable;
  return std::filesystem::exists(sensitivity_, unreadable) || unreadable;
}

std::vector<std::string> AllocateFlags::inputs() const {
  std::vector<std::string> files = {text_};
  if (knows_sensitivity()) files.push_back(sensitivity_);
  return files;
}

std::vector<std::string> AllocateFlags::outputs() const {
  if (!given() || knows_sensitivity()) return {};
  return {sensitivity_};
}

std::string AllocateFlags::first_candidate() const {
  return candidates_.empty() ? std::string(default_candidates().front()->name)
                             : candidates_.front();
}

Allocation AllocateFlags::allocate(const std::string& folder, const Recipe& base,
                                   const CalibrationRequest& calibration, ThreadPool& pool) const {
  StageProgress progress;
  AllocationRequest request;
  request.folder = folder;
  request.text = text_;
  request.candidates = candidates_;
  request.calibration = calibration;
  AllocateOptions& options = request.options;
  options.bits_per_weight = bits_;
  if (!size_.empty()) options.file_bytes = parse_bytes(size_, "--size");
  options.ctx = kWindow;
  options.windows = std::max<int64_t>(tokens_ / kWindow, 1);
  options.evaluations = evaluations_;
  options.sensitivity_file = sensitivity_;
  options.announce = [](const AllocationCost& cost) {
    if (!cost.note.empty()) print_note(cost.note);
    print_note(cost_text(cost));
  };
  options.progress = [&](const char* stage, int64_t done, int64_t total) {
    progress.update(stage, done, total);
  };
  LoadOptions load;
  load.pool = &pool;
  return allocate_checkpoint(std::move(request), base, load);
}

std::string allocation_text(const Allocation& a) {
  std::string text = fmt::format("{:<45} {:<8} {:>7} {:>10} {:>10} {:>7}\n", "tensor", "format",
                                 "bits", "alpha", "damage", "share");
  double total = 0;
  for (const TensorAllocation& t : a.tensors)
    total += t.damage;
  for (const TensorAllocation& t : a.tensors) {
    text += fmt::format("{:<45} {:<8} {:>7.4f} {:>10.3g} {:>10.3g} {:>5.1f} %\n", t.name,
                        t.format->name, t.bits(), t.alpha, t.damage, 100 * t.damage / total);
  }
  text +=
      fmt::format("\nKL divergence on {} tokens, verified on {} others ({}); {} recipes measured\n",
                  a.measured_tokens, a.verified_tokens,
                  a.self_text ? "written by the model itself" : "of the text", a.measured_recipes);
  text += fmt::format("{:<10} {:>7} {:>12} {:>12} {:>12} {:>21}\n", "", "bits", "sum of alone",
                      "predicted", "measured", "verified");
  text += measured_line("uniform", a.uniform);
  text += measured_line("equal bits", a.equal);
  text += measured_line("allocated", a.allocated);
  text += a.uniform_is_better
              ? "The uniform format is kept: the allocation was not better.\n"
              : fmt::format("The allocation is used: {:+.1f} % divergence at equal bits.\n",
                            100 * gain(a));
  return text;
}

Json allocation_json(const Allocation& a) {
  Json tensors = Json::array();
  for (const TensorAllocation& t : a.tensors) {
    tensors.push_back({{"tensor", t.name},
                       {"type", t.format->name},
                       {"bits", t.bits()},
                       {"alpha", t.alpha},
                       {"damage", t.damage}});
  }
  return {{"uniform", measured_json(a.uniform)},
          {"equal_bits", measured_json(a.equal)},
          {"allocated", measured_json(a.allocated)},
          {"chosen", a.uniform_is_better ? "uniform" : "allocated"},
          {"measured_tokens", a.measured_tokens},
          {"verified_tokens", a.verified_tokens},
          {"measured_recipes", a.measured_recipes},
          {"self_written", a.self_text},
          {"tensors", std::move(tensors)}};
}

}  // namespace walsh::cli
