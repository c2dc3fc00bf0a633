#include "allocate/allocate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "allocate/erring_model.h"
#include "allocate/search.h"
#include "allocate/self_text.h"
#include "allocate/sensitivity.h"
#include "allocate/sensitivity_file.h"
#include "allocate/stand_in.h"
#include "base/spelling.h"
#include "calibrate/text_windows.h"
#include "io/atomic_file.h"
#include "quantize/pipeline/pipeline.h"
#include "quantize/pipeline/time_estimate.h"
#include "walsh/error.h"
#include "weights/open.h"

namespace walsh {
namespace {

constexpr double kLeastBits = 1, kMostBits = 16;

// In models of more than kManyWeights weights, single tensors are measured on only kShortWindow
// tokens of each window: to compare tensors takes fewer tokens than to tell what a whole model
// loses.
constexpr int64_t kShortWindow = 128;
constexpr uint64_t kManyWeights = 1'000'000'000;

constexpr uint64_t kTextSeed = 2;  // calibration draws another text
// A GPU keeps this many bytes free for a session.
constexpr uint64_t kSessionBytes = uint64_t{4} << 30;

void check(const AllocateOptions& options) {
  if ((options.bits_per_weight != 0) == (options.file_bytes != 0)) {
    throw Error(ErrorCode::usage, "--bpw, --size", "exactly one of them is needed");
  }
  const double bits = options.bits_per_weight;
  if (bits != 0 && !(bits >= kLeastBits && bits <= kMostBits)) {
    throw Error(ErrorCode::usage, "--bpw",
                std::to_string(bits) + " bits per weight, expected 1 to 16");
  }
  if (options.windows < 1 || options.evaluations < 0) {
    throw Error(ErrorCode::usage, "allocation", "needs at least one window");
  }
}

class Allocator {
 public:
  Allocator(const OpenCompressor& open, const Recipe& base, const AllocateOptions& options,
            const LoadOptions& load)
      : open_(open),
        options_(options),
        load_(load),
        candidates_(open, base,
                    options.candidates.empty() ? default_candidates() : options.candidates,
                    options.file_bytes != 0) {}

  Allocation run() {
    check_text();
    uint64_t budget = first_budget();
    check_budget(budget);
    const bool known = know_sensitivity();
    auto compressor = open_(candidates_.stand_in_recipe());
    const Compressor& recipe = *compressor;
    stand_in_.emplace(std::move(compressor), *load_.pool);
    model_.emplace(candidates_.tensors(), *stand_in_, on_device());
    if (options_.announce) options_.announce(cost(known, recipe));
    read_text();
    if (!known) measure_sensitivity();
    for (;;) {
      search(budget);
      if (options_.file_bytes == 0) break;
      // Names and rules in the file and the alignment of arrays may need a smaller budget.
      const uint64_t bytes = std::max(file_bytes(best_), file_bytes(uniform_));
      if (bytes <= options_.file_bytes) break;
      budget -= std::min(budget, bytes - options_.file_bytes);
    }
    return verified();
  }

 private:
  using Windows = std::vector<std::vector<int32_t>>;

  void tell(const char* stage, int64_t done, int64_t total) {
    if (options_.progress) options_.progress(stage, done, total);
    stage_ = {stage, done, total};
  }

  // Reads the sensitivities from the file, if it exists.
  bool know_sensitivity() {
    const std::string& file = options_.sensitivity_file;
    const auto text = read_sensitivity(file);
    if (text) sensitivity_ = parse_sensitivity(*text, file, candidates_, options_.conditions);
    return text.has_value();
  }

  void measure_sensitivity() {
    const std::string& file = options_.sensitivity_file;
    const auto short_text = make_text(cut(text_, 0, sensitivity_window()));
    sensitivity_ = walsh::measure_sensitivity(
        candidates_, *model_, *short_text,
        [&](int64_t done, int64_t total) { tell("measuring sensitivity", done, total); });
    if (file.empty()) return;
    write_file(file, format_sensitivity(candidates_, sensitivity_, options_.conditions));
  }

  int64_t sensitivity_window() const {
    const bool many = candidates_.linear_weights() > kManyWeights;
    return many ? std::min(options_.ctx, kShortWindow) : options_.ctx;
  }

  // Returns the number of windows for the search; the verification takes as many.
  int64_t windows() const {
    const auto tokens = static_cast<int64_t>(options_.text.size());
    const int64_t all = tokens == 0 ? 2 * options_.windows : tokens / options_.ctx;
    return std::min(options_.windows, all / 2);
  }

  // Encoding is counted as the stand-in's code takes; measuring moments for a calibration takes
  // half a pass over its text more.
  AllocationCost cost(bool known, const Compressor& recipe) const {
    const double token_seconds = seconds_per_token(*model_);
    const auto tokens = static_cast<double>(windows() * options_.ctx);
    const auto threads = static_cast<double>(load_.pool->size());
    AllocationCost cost;
    cost.note = model_->note();
    uint64_t weights = 0;
    for (const CandidateTensor& tensor : candidates_.tensors()) {
      weights += tensor.weights();
      cost.bytes += tensor.members.size() * tensor_bytes(recipe.format_of(tensor.members.front()),
                                                         tensor.rows, tensor.cols);
    }
    cost.bytes += model_->bytes(windows() * options_.ctx);
    if (!known)
      cost.alone = static_cast<int64_t>(candidates_.tensors().size() *
                                        measured_errors(candidates_.formats()).size());
    cost.whole = options_.evaluations + 4;
    const double share =
        static_cast<double>(sensitivity_window()) / static_cast<double>(options_.ctx);
    // The 5 are the reference and the verification.
    double passes = static_cast<double>(cost.whole + 5);
    // A pass begins at the tensor's layer, on average half way.
    passes += share * (1 + static_cast<double>(cost.alone) / 2);
    cost.seconds = passes * tokens * token_seconds +
                   static_cast<double>(weights) / threads * 1e-9 *
                       encoding_cost(*recipe.recipe().type, recipe.recipe().encode, false);
    if (options_.text.empty()) {
      cost.steps = self_text_steps(self_text());
      cost.seconds +=
          static_cast<double>(cost.steps) * seconds_per_step(model_->model(), self_text());
    }
    if (const auto& calibration = recipe.recipe().calibration)
      cost.seconds += 1.5 * static_cast<double>(calibration->tokens) * token_seconds;
    return cost;
  }

  // A GPU has room for all windows of the search at once, and for a session that writes them.
  LoadOptions on_device() const {
    LoadOptions load = load_;
    load.device = options_.device;
    if (!load.device.cuda) return load;
    load.use.max_positions = options_.ctx;
    load.use.sequences = std::clamp<int64_t>(kGpuBatchRows / options_.ctx, 1, windows());
    load.batch_rows = kGpuBatchRows;
    load.device_spare = kSessionBytes;
    return load;
  }

  SelfTextOptions self_text() const {
    SelfTextOptions self;
    self.ctx = options_.ctx;
    self.windows = 2 * options_.windows;
    self.bos = options_.bos;
    self.seed = kTextSeed;
    return self;
  }

  void write_text() {
    text_ = write_self_text(model_->model(), self_text(), [&](int64_t done, int64_t total) {
      tell("writing text", done, total);
    });
  }

  void check_text() const {
    if (windows() >= 1) return;
    throw Error(ErrorCode::usage, "--allocate-text",
                "the text has " + counted(static_cast<int64_t>(options_.text.size()), "token") +
                    ", two windows need " + std::to_string(2 * options_.ctx));
  }

  // The search uses the first half of the windows, the verification the second.
  void read_text() {
    text_ = options_.text;
    if (text_.empty()) write_text();
    tell("running the unquantized model", 0, 1);
    search_text_ = make_text(cut(text_, 0, options_.ctx));
    held_out_ = make_text(cut(text_, windows() * options_.ctx, options_.ctx));
  }

  // Returns the first `length` tokens of each window; the windows begin at token `begin`.
  Windows cut(const std::vector<int32_t>& text, int64_t begin, int64_t length) const {
    Windows result;
    for (int64_t w = 0; w < windows(); ++w) {
      const auto first = text.begin() + begin + w * options_.ctx;
      result.emplace_back(first, first + length);
      if (options_.bos >= 0) result.back().front() = options_.bos;
    }
    return result;
  }

  std::unique_ptr<ErringModel::Text> make_text(Windows windows) {
    return model_->text(std::move(windows), [this] {
      if (stage_.name != nullptr) tell(stage_.name, stage_.done, stage_.total);
    });
  }

  // Returns the budget for the free tensors, in bytes.
  uint64_t first_budget() const {
    if (options_.file_bytes == 0) {
      const double bits =
          options_.bits_per_weight * static_cast<double>(candidates_.linear_weights());
      const auto bytes = static_cast<uint64_t>(bits / 8);
      const uint64_t fixed = candidates_.fixed_linear_bytes();
      if (bytes > fixed) return bytes - fixed;
      throw Error(ErrorCode::limit, "--bpw",
                  "the tensors that rules name take " + std::to_string(fixed) +
                      " bytes, and only " + std::to_string(bytes) + " are asked for");
    }
    // The rest of the file is counted with an assignment that mixes formats, whose rules take about
    // as much space as the result's.
    Assignment mixed;
    uint64_t free = 0;
    for (size_t t = 0; t < candidates_.tensors().size(); ++t) {
      mixed.push_back(static_cast<int>(t % candidates_.formats().size()));
      free += candidates_.bytes(t, mixed.back());
    }
    const uint64_t rest = file_bytes(mixed) - free;
    if (options_.file_bytes > rest) return options_.file_bytes - rest;
    throw Error(ErrorCode::limit, "--size",
                counted(static_cast<int64_t>(options_.file_bytes), "byte") +
                    " cannot hold the file: what is not compressed takes " + std::to_string(rest));
  }

  // Throws, before anything is measured, if nothing fits into the budget.
  void check_budget(uint64_t budget) const {
    uint64_t least = 0;
    for (size_t t = 0; t < candidates_.tensors().size(); ++t) {
      uint64_t bytes = candidates_.bytes(t, 0);
      for (int c = 1; c < candidates_.count(t); ++c)
        bytes = std::min(bytes, candidates_.bytes(t, c));
      least += bytes;
    }
    if (budget >= least) return;
    throw Error(ErrorCode::limit, options_.file_bytes != 0 ? "--size" : "--bpw",
                "leaves " + std::to_string(budget) +
                    " bytes for the weights, the narrowest candidates need " +
                    std::to_string(least));
  }

  uint64_t file_bytes(const Assignment& assignment) const {
    const auto compressor = open_(candidates_.recipe(assignment));
    compressor->settle_formats();
    return predict(*compressor).file_bytes;
  }

  std::vector<double> errors_of(const Assignment& assignment) const {
    std::vector<double> errors;
    for (const int candidate : assignment) {
      const auto c = static_cast<size_t>(candidate);
      const bool is_source = c == candidates_.formats().size();
      errors.push_back(is_source ? 0 : declared_nmse(*candidates_.formats()[c]));
    }
    return errors;
  }

  void search(uint64_t budget) {
    const int64_t most = options_.evaluations + 4;
    search_.emplace(candidates_, sensitivity_, budget, [this, most](const Assignment& assignment) {
      tell("measuring recipes", static_cast<int64_t>(search_->history().size()), most);
      return model_->divergence(*search_text_, errors_of(assignment));
    });
    uniform_ = search_->uniform().assignment;
    best_ = search_->best(options_.evaluations).assignment;
  }

  uint64_t linear_bytes(const Assignment& assignment) const {
    uint64_t bytes = candidates_.fixed_linear_bytes();
    for (size_t t = 0; t < assignment.size(); ++t)
      if (candidates_.tensors()[t].linear) bytes += candidates_.bytes(t, assignment[t]);
    return bytes;
  }

  double bits_of(double linear_bytes) const {
    return 8 * linear_bytes / static_cast<double>(candidates_.linear_weights());
  }

  MeasuredRecipe describe(const Assignment& assignment) {
    const Measured measured = search_->measure(assignment);
    MeasuredRecipe result;
    result.recipe = candidates_.recipe(assignment);
    result.bits_per_weight = bits_of(static_cast<double>(linear_bytes(assignment)));
    result.linear = measured.damage;
    result.predicted = corrected(measured.damage);
    result.searched = measured.kld;
    result.verified = model_->divergence(*held_out_, errors_of(assignment));
    return result;
  }

  // Scales a sum of the tensors' own damages by the ratio of measured to summed damage, which is
  // known for the uniform format.
  double corrected(double damage) {
    const Measured& uniform = search_->measure(uniform_);
    return damage * uniform.kld.value / uniform.damage;
  }

  // Maps the bytes that all layers take in one format to the format's error. Formats that a smaller
  // one beats are left out.
  std::map<double, double> uniform_errors() const {
    std::map<double, double> errors;
    Assignment assignment = uniform_;
    for (int c = 0; c < static_cast<int>(candidates_.formats().size()); ++c) {
      for (size_t t = 0; t < assignment.size(); ++t)
        if (candidates_.tensors()[t].linear) assignment[t] = c;
      const double error = declared_nmse(*candidates_.formats()[static_cast<size_t>(c)]);
      const auto [known, is_new] =
          errors.emplace(static_cast<double>(linear_bytes(assignment)), error);
      if (!is_new) known->second = std::min(known->second, error);
    }
    // Formats that a smaller one beats are dropped.
    for (auto e = std::next(errors.begin()); e != errors.end();)
      e = e->second >= std::prev(e)->second ? errors.erase(e) : std::next(e);
    return errors;
  }

  // Measures the model in which all layers have one error (Allocation::equal); embedding and head
  // keep the uniform format.
  MeasuredRecipe describe_equal() {
    const std::map<double, double> known = uniform_errors();
    MeasuredRecipe result;
    const double bytes = static_cast<double>(linear_bytes(uniform_)) +
                         static_cast<double>(search_->bytes(best_)) -
                         static_cast<double>(search_->bytes(uniform_));
    auto above = known.lower_bound(bytes);
    if (above == known.end()) above = std::prev(above);
    const auto below = above == known.begin() ? above : std::prev(above);
    const double span = above->first - below->first;
    const double share = span > 0 ? std::min((bytes - below->first) / span, 1.0) : 0;
    const double error =
        std::exp((1 - share) * std::log(below->second) + share * std::log(above->second));
    result.bits_per_weight = bits_of(bytes);
    std::vector<double> errors = errors_of(uniform_);
    for (size_t t = 0; t < errors.size(); ++t) {
      if (candidates_.tensors()[t].linear) errors[t] = error;
      if (errors[t] > 0) result.linear += sensitivity_.curves[t].at(errors[t]);
    }
    result.predicted = corrected(result.linear);
    result.searched = model_->divergence(*search_text_, errors);
    result.verified = model_->divergence(*held_out_, errors);
    return result;
  }

  Allocation verified() {
    Allocation result;
    result.measured_recipes = static_cast<int64_t>(search_->history().size());
    tell("verifying", 0, 3);
    result.uniform = describe(uniform_);
    tell("verifying", 1, 3);
    result.allocated = best_ == uniform_ ? result.uniform : describe(best_);
    tell("verifying", 2, 3);
    result.equal = describe_equal();
    result.uniform_is_better =
        best_ == uniform_ || result.allocated.verified.value >= result.uniform.verified.value;
    result.measured_tokens = search_text_->reference.tokens();
    result.verified_tokens = held_out_->reference.tokens();
    result.self_text = options_.text.empty();
    const Assignment& chosen = result.uniform_is_better ? uniform_ : best_;
    for (size_t t = 0; t < chosen.size(); ++t) {
      const CandidateTensor& tensor = candidates_.tensors()[t];
      result.tensors.push_back({tensor.name, tensor.linear, tensor.weights(),
                                candidates_.bytes(t, chosen[t]), &candidates_.format(t, chosen[t]),
                                sensitivity_.curves[t].alpha(),
                                sensitivity_.damage[t][static_cast<size_t>(chosen[t])]});
    }
    return result;
  }

  struct Stage {
    const char* name = nullptr;
    int64_t done = 0, total = 0;
  };

  const OpenCompressor& open_;
  const AllocateOptions& options_;
  const LoadOptions& load_;
  Candidates candidates_;
  std::optional<StandIn> stand_in_;
  std::optional<ErringModel> model_;
  Stage stage_;
  Sensitivity sensitivity_;
  std::vector<int32_t> text_;
  std::unique_ptr<ErringModel::Text> search_text_, held_out_;
  std::optional<AllocationSearch> search_;
  Assignment uniform_, best_;
};

}  // namespace

std::vector<const Format*> default_candidates() {
  std::vector<const Format*> formats;
  for (const char* name : {"tc2", "tc2.5", "tc3", "tc3.5", "tc4", "tq4+2", "tq4+4"})
    formats.push_back(&get_format(name));
  return formats;
}

Allocation allocate(const OpenCompressor& open, const Recipe& base, const AllocateOptions& options,
                    const LoadOptions& load) {
  check(options);
  if (load.pool == nullptr) {
    throw Error(ErrorCode::internal, "allocation", "a thread pool is needed");
  }
  return Allocator(open, base, options, load).run();
}

}  // namespace walsh
