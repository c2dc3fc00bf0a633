#include "allocate/allocate.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "allocate/reference_text.h"
#include "allocate/self_text.h"
#include "allocate/sensitivity_file.h"
#include "base/spelling.h"
#include "io/atomic_file.h"
#include "io/mapped_file.h"
#include "quantize/pipeline/pipeline.h"
#include "walsh/error.h"
#include "weights/open.h"

namespace walsh {
namespace {

constexpr double kLeastBits = 1, kMostBits = 16;

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

// Predicts the divergence of a whole model from the sum S of its tensors' own damages: straight
// lines in logarithmic scale through the measured models, extended at both ends.
class Correction {
 public:
  void add(double sum, double kld) { points_.emplace_back(std::log(sum), std::log(kld)); }

  double at(double sum) {
    std::sort(points_.begin(), points_.end());
    const double x = std::log(sum);
    if (points_.size() == 1) return std::exp(points_[0].second + x - points_[0].first);
    size_t i = 1;
    while (i + 1 < points_.size() && x > points_[i].first)
      ++i;
    const auto [x0, y0] = points_[i - 1];
    const auto [x1, y1] = points_[i];
    return std::exp(y0 + (y1 - y0) * (x - x0) / (x1 - x0));
  }

 private:
  std::vector<std::pair<double, double>> points_;
};

class Allocator {
 public:
  Allocator(const OpenCompressor& open, const Recipe& base, const AllocateOptions& options,
            const LoadOptions& load)
      : open_(open),
        options_(options),
        load_(load),
        candidates_(open, base,
                    options.candidates.empty() ? default_candidates() : options.candidates,
                    options.file_bytes != 0, *load.pool),
        plain_(candidates_.plain()),
        config_(read_config(*plain_)) {}

  Allocation run() {
    uint64_t budget = first_budget();
    check_budget(budget);
    const bool known = know_sensitivity();
    read_text();
    if (!known) measure_sensitivity();
    for (;;) {
      search(budget);
      if (options_.file_bytes == 0) break;
      // An allowance for the names and rules in the file and the alignment of arrays.
      const uint64_t bytes = std::max(file_bytes(best_), file_bytes(uniform_));
      if (bytes <= options_.file_bytes) break;
      budget -= std::min(budget, bytes - options_.file_bytes);
    }
    return verified();
  }

 private:
  void tell(const char* stage, int64_t done, int64_t total) const {
    if (options_.progress) options_.progress(stage, done, total);
  }

  Model load(WeightSource& source) const {
    LoadOptions quiet = load_;
    quiet.progress = {};
    return Model::load(source, config_, quiet);
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
    tell("measuring sensitivity", 0, 1);
    sensitivity_ = walsh::measure_sensitivity(
        candidates_, *plain_, *search_text_, options_.probe, load_,
        [&](int64_t done, int64_t total) { tell("measuring sensitivity", done, total); });
    if (file.empty()) return;
    write_file(file, format_sensitivity(candidates_, sensitivity_, options_.conditions));
  }

  void read_text() {
    const Model reference = load(*plain_);
    std::vector<int32_t> text = options_.text;
    ReferenceTextOptions cut;
    cut.ctx = options_.ctx;
    cut.bos = options_.bos;
    if (text.empty()) {
      SelfTextOptions self;
      self.ctx = options_.ctx;
      self.windows = 2 * options_.windows;
      self.bos = options_.bos;
      text = write_self_text(
          reference, self, [&](int64_t done, int64_t total) { tell("writing text", done, total); });
    }
    // The search uses the first half of the windows, the verification the second.
    const int64_t all = static_cast<int64_t>(text.size()) / options_.ctx;
    if (all < 2) {
      throw Error(ErrorCode::usage, "--allocate-text",
                  "the text has " + std::to_string(text.size()) + " tokens, two windows need " +
                      std::to_string(2 * options_.ctx));
    }
    cut.windows = std::min(options_.windows, all / 2);
    tell("running the unquantized model", 0, 1);
    search_text_.emplace(reference, text, cut);
    const auto behind = static_cast<size_t>(cut.windows * options_.ctx);
    held_out_.emplace(reference, std::span(text).subspan(behind), cut);
  }

  // Budget in bytes for the free tensors.
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
    // Counts with an assignment that mixes formats, whose rules take about as much space as the
    // result's.
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

  // Checks the budget before anything is measured.
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

  Estimate measure(const Assignment& assignment, const ReferenceText& text) {
    const auto source = candidates_.source(assignment);
    return text.divergence(load(*source));
  }

  void search(uint64_t budget) {
    const int64_t most = options_.evaluations + 4;
    search_.emplace(candidates_, sensitivity_, budget, [this, most](const Assignment& assignment) {
      tell("measuring recipes", static_cast<int64_t>(search_->history().size()), most);
      return measure(assignment, *search_text_);
    });
    uniform_ = search_->uniform().assignment;
    best_ = search_->best(options_.evaluations).assignment;
  }

  // The prediction uses uniform models only, so that it can be compared with other measurements.
  Correction correction() {
    Correction correction;
    const Measured uniform = search_->measure(uniform_);
    correction.add(uniform.damage, uniform.kld.value);
    if (options_.probe == Probe::noise) return correction;
    for (int c = 0; c < static_cast<int>(candidates_.formats().size()); ++c) {
      Assignment other = uniform_;
      for (size_t t = 0; t < other.size(); ++t)
        if (candidates_.tensors()[t].linear) other[t] = c;
      if (other == uniform_ || !encoded_already(c)) continue;
      const Measured measured = search_->measure(other);
      correction.add(measured.damage, measured.kld.value);
    }
    return correction;
  }

  bool encoded_already(int candidate) const {
    const auto& curves = sensitivity_.curves;
    const double error = declared_nmse(*candidates_.formats()[static_cast<size_t>(candidate)]);
    return error == curves[0].nmse[0] || error == curves[0].nmse[curves[0].points - 1];
  }

  MeasuredRecipe describe(const Assignment& assignment, Correction& correction) {
    const Measured measured = search_->measure(assignment);
    MeasuredRecipe result;
    result.recipe = candidates_.recipe(assignment);
    uint64_t bytes = candidates_.fixed_linear_bytes();
    for (size_t t = 0; t < assignment.size(); ++t)
      if (candidates_.tensors()[t].linear) bytes += candidates_.bytes(t, assignment[t]);
    result.bits_per_weight =
        8 * static_cast<double>(bytes) / static_cast<double>(candidates_.linear_weights());
    result.linear = measured.damage;
    result.predicted = correction.at(measured.damage);
    result.searched = measured.kld;
    tell("verifying", assignment == uniform_ ? 0 : 1, 2);
    result.verified = measure(assignment, *held_out_);
    return result;
  }

  Allocation verified() {
    Allocation result;
    result.measured_recipes = static_cast<int64_t>(search_->history().size());
    Correction known = correction();
    result.uniform = describe(uniform_, known);
    result.allocated = best_ == uniform_ ? result.uniform : describe(best_, known);
    result.uniform_is_better =
        best_ == uniform_ || result.allocated.verified.value >= result.uniform.verified.value;
    result.measured_tokens = search_text_->tokens();
    result.verified_tokens = held_out_->tokens();
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

  const OpenCompressor& open_;
  const AllocateOptions& options_;
  const LoadOptions& load_;
  Candidates candidates_;
  std::unique_ptr<WeightSource> plain_;
  ModelConfig config_;
  Sensitivity sensitivity_;
  std::optional<ReferenceText> search_text_, held_out_;
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
