#include "allocate/candidates.h"

#include <algorithm>

#include "arch/plan.h"
#include "base/aligned.h"
#include "quantize/pipeline/open.h"
#include "quantize/source/balance.h"
#include "walsh/error.h"

namespace walsh {
namespace {

bool named_by_a_rule(const Recipe& recipe, const std::string& tensor, StepBudget& steps) {
  return std::any_of(recipe.rules.begin(), recipe.rules.end(),
                     [&](const TensorRule& rule) { return rule.matches(tensor, steps); });
}

const TensorPlan& plan_of(const Compressor& compressor, const std::string& name) {
  const auto& plans = compressor.tensors();
  return *std::find_if(plans.begin(), plans.end(),
                       [&](const TensorPlan& plan) { return plan.name == name; });
}

// The factors by which calibrated balancing multiplied this matrix's rows, because another matrix's
// input (of o or down) was balanced; empty if none.
std::vector<float> row_factors(Compressor& compressor, const std::string& name, int64_t rows) {
  const int fed = plan_of(compressor, name).fed_site;
  if (fed < 0) return {};
  const ModelPlan plan = read_plan(compressor.config_json(), compressor.path() + ": config.json");
  const Site& site = plan.sites[static_cast<size_t>(fed)];
  return feeder_factors(site.feeder, compressor.column_scales(site.matrices.front()), rows);
}

// One rule for all members of a tensor.
TensorRule rule_for(const CandidateTensor& tensor, const Format* format) {
  std::string pattern = tensor.name;
  if (const size_t star = pattern.find('*'); star != std::string::npos)
    pattern =
        "re:^\\Q" + pattern.substr(0, star) + "\\E[0-9]+\\Q" + pattern.substr(star + 1) + "\\E$";
  TensorRule rule = parse_ignore(pattern);
  rule.format = format;
  return rule;
}

// Undoes the rotation of the outputs, column by column.
void invert_outputs(const Rotation& rotation, int64_t rows, int64_t cols, ThreadPool& pool,
                    float* values) {
  if (rotation.kind == RotationKind::none) return;
  const Rotator rotator(rotation, rows);
  pool.for_ranges(cols, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> column(static_cast<size_t>(rows));
    for (int64_t c = begin; c < end; ++c) {
      for (int64_t r = 0; r < rows; ++r)
        column[static_cast<size_t>(r)] = values[r * cols + c];
      rotator.invert(column.data());
      for (int64_t r = 0; r < rows; ++r)
        values[r * cols + c] = column[static_cast<size_t>(r)];
    }
  });
}

}  // namespace

// Takes each tensor from the compressor of its assigned candidate.
class AssignedSource : public WeightSource {
 public:
  AssignedSource(Candidates& candidates, const Assignment& assignment)
      : candidates_(candidates), assignment_(assignment) {}

  std::string path() const override { return first().path(); }
  std::string_view config_json() const override { return first().config_json(); }
  std::string_view generation_config_json() const override {
    return first().generation_config_json();
  }
  std::string_view tokenizer_json() const override { return first().tokenizer_json(); }
  std::string_view tokenizer_config_json() const override {
    return first().tokenizer_config_json();
  }
  bool contains(const std::string& name) const override { return first().contains(name); }
  std::vector<std::string> names() const override { return first().names(); }
  const Format& format_of(const std::string& name) const override {
    return owner(name).format_of(name);
  }
  Tensor load(const std::string& name) override {
    return candidates_.encoded(name, candidate_of(name));
  }
  void release(const std::string&) override {}
  bool folded() const override { return first().folded(); }
  StoredForm form_of(const std::string& name) const override { return owner(name).form_of(name); }

 private:
  const Compressor& first() const { return candidates_.compressor(0); }
  const Compressor& owner(const std::string& name) const {
    return candidates_.compressor(candidate_of(name));
  }
  // If the head stays as it is, the gain of the norm in front of it stays too.
  int candidate_of(const std::string& name) const {
    const auto it = candidates_.index_.find(name);
    if (it != candidates_.index_.end()) return assignment_[it->second];
    const auto reader = candidates_.gain_readers_.find(name);
    return reader == candidates_.gain_readers_.end() ? 0 : assignment_[reader->second];
  }

  Candidates& candidates_;
  Assignment assignment_;
};

Candidates::Candidates(const OpenCompressor& open, Recipe base, std::vector<const Format*> formats,
                       bool whole_file, ThreadPool& pool)
    : pool_(pool), base_(std::move(base)), formats_(std::move(formats)), whole_file_(whole_file) {
  check_formats();
  const int count = static_cast<int>(formats_.size()) + (whole_file_ ? 1 : 0);
  for (int c = 0; c < count; ++c) {
    compressors_.push_back(open(candidate_recipe(c)));
    compressors_.back()->settle_formats();
  }
  const ModelPlan model =
      read_plan(compressors_[0]->config_json(), compressors_[0]->path() + ": config.json");
  std::map<std::string, size_t> kinds;  // experts by kind
  StepBudget steps(kRuleSteps);
  for (const TensorPlan& plan : compressors_[0]->tensors()) {
    if (plan.site < 0 || named_by_a_rule(base_, plan.name, steps)) continue;
    if (!plan.linear && !whole_file_) continue;
    const auto expert = model.experts.find(plan.name);
    const std::string& name = expert == model.experts.end() ? plan.name : expert->second.kind;
    const auto [known, is_new] = kinds.emplace(name, tensors_.size());
    if (is_new) tensors_.push_back({name, {}, plan.rows, plan.cols, plan.linear});
    tensors_[known->second].members.push_back(plan.name);
    index_[plan.name] = known->second;
  }
  if (tensors_.empty()) {
    throw Error(ErrorCode::usage, "--override", "no tensor is left whose format is free");
  }
  find_gain_readers();
}

// Channels of an input are balanced only if all matrices that read it are rotated; a mix of
// candidates must keep that.
void Candidates::check_formats() const {
  if (formats_.empty() || formats_.size() > kMaxCandidates) {
    throw Error(ErrorCode::usage, "--candidates",
                "found " + std::to_string(formats_.size()) + " formats, expected 1 to " +
                    std::to_string(kMaxCandidates));
  }
  const bool rotated = formats_[0]->rotation_block != 0;
  for (size_t i = 0; i < formats_.size(); ++i) {
    const Format& format = *formats_[i];
    if (std::find(formats_.begin(), formats_.begin() + static_cast<std::ptrdiff_t>(i), &format) !=
        formats_.begin() + static_cast<std::ptrdiff_t>(i)) {
      throw Error(ErrorCode::usage, "--candidates", std::string(format.name) + " is there twice");
    }
    if ((format.rotation_block != 0) == rotated) continue;
    throw Error(ErrorCode::usage, "--candidates",
                std::string(formats_[0]->name) + " and " + std::string(format.name) +
                    " cannot be mixed: one is rotated and the other is not");
  }
}

Recipe Candidates::candidate_recipe(int candidate) const {
  Recipe recipe = base_;
  const bool source = candidate == static_cast<int>(formats_.size());
  recipe.type = formats_[source ? 0 : static_cast<size_t>(candidate)];
  if (whole_file_) recipe.embed_type = recipe.head_type = source ? nullptr : recipe.type;
  return recipe;
}

void Candidates::find_gain_readers() {
  for (const TensorPlan& norm : compressors_[0]->tensors()) {
    if (norm.folded_site < 0) continue;
    for (size_t t = 0; t < tensors_.size(); ++t) {
      const TensorPlan& plan = plan_of(*compressors_[0], tensors_[t].members.front());
      if (plan.site == norm.folded_site) gain_readers_[norm.name] = t;
    }
  }
}

int Candidates::count(size_t tensor) const {
  return static_cast<int>(formats_.size()) + (tensors_[tensor].linear ? 0 : 1);
}

const Format& Candidates::format(size_t tensor, int candidate) const {
  return compressor(candidate).format_of(tensors_[tensor].members.front());
}

uint64_t Candidates::bytes(size_t tensor, int candidate) const {
  const CandidateTensor& t = tensors_[tensor];
  uint64_t sum = 0;
  for (const std::string& name : t.members)
    sum += tensor_bytes(compressor(candidate).format_of(name), t.rows, t.cols);
  return sum;
}

double Candidates::nmse(size_t tensor, int candidate) {
  double sum = 0;
  for (const std::string& name : tensors_[tensor].members) {
    encoded(name, candidate);
    sum += compressor(candidate).nmse(name);
  }
  return sum / static_cast<double>(tensors_[tensor].members.size());
}

uint64_t Candidates::linear_weights() const {
  uint64_t sum = 0;
  for (const TensorPlan& plan : compressors_[0]->tensors()) {
    if (plan.linear) sum += static_cast<uint64_t>(plan.rows) * static_cast<uint64_t>(plan.cols);
  }
  return sum;
}

uint64_t Candidates::fixed_linear_bytes() const {
  uint64_t sum = 0;
  for (const TensorPlan& plan : compressors_[0]->tensors())
    if (plan.linear && !index_.contains(plan.name)) sum += plan.bytes();
  return sum;
}

const Tensor& Candidates::encoded(const std::string& name, int candidate) {
  const auto key = std::make_pair(name, candidate);
  const auto it = encoded_.find(key);
  if (it != encoded_.end()) return it->second;
  return encoded_[key] = compressor(candidate).load(name);
}

std::unique_ptr<WeightSource> Candidates::plain() const {
  Recipe dense = base_;
  dense.type = &dense_format(DType::f32);
  dense.rules.clear();
  const bool folded = base_.rotate == RotateAt::residual;
  return open_source(compressors_[0]->path(), folded ? &dense : nullptr, pool_);
}

Tensor Candidates::decoded(const std::string& name, int candidate) {
  const CandidateTensor& t = tensors_[index_.at(name)];
  const Tensor& coded = encoded(name, candidate);
  const std::span<const float> scales = compressor(candidate).column_scales(name);
  auto buffer = std::make_shared<AlignedArray<float>>(static_cast<size_t>(t.rows * t.cols));
  pool_.for_ranges(t.rows, 16, [&](int64_t begin, int64_t end) {
    float* out = buffer->data() + begin * t.cols;
    decode_rows(coded, begin, end, out);
    if (scales.empty()) return;
    for (int64_t r = begin; r < end; ++r, out += t.cols)
      for (size_t c = 0; c < scales.size(); ++c)
        out[c] /= scales[c];
  });
  invert_outputs(compressor(candidate).form_of(name).output, t.rows, t.cols, pool_, buffer->data());
  const std::vector<float> factors = row_factors(compressor(candidate), name, t.rows);
  for (size_t r = 0; r < factors.size(); ++r) {
    float* row = buffer->data() + static_cast<int64_t>(r) * t.cols;
    for (int64_t c = 0; c < t.cols; ++c)
      row[c] /= factors[r];
  }
  Tensor result;
  result.format = &dense_format(DType::f32);
  result.rows = t.rows;
  result.cols = t.cols;
  result.data = std::as_bytes(std::span<const float>(buffer->data(), buffer->size()));
  result.owner = buffer;
  return result;
}

std::unique_ptr<WeightSource> Candidates::source(const Assignment& assignment) {
  return std::make_unique<AssignedSource>(*this, assignment);
}

Recipe Candidates::recipe(const Assignment& assignment) const {
  std::vector<uint64_t> weights(formats_.size());
  for (size_t t = 0; t < tensors_.size(); ++t) {
    if (tensors_[t].linear) weights[static_cast<size_t>(assignment[t])] += tensors_[t].weights();
  }
  const auto most = std::max_element(weights.begin(), weights.end()) - weights.begin();
  Recipe recipe = base_;
  recipe.type = formats_[static_cast<size_t>(most)];
  for (size_t t = 0; t < tensors_.size(); ++t) {
    const bool source = assignment[t] == static_cast<int>(formats_.size());
    const Format* format = source ? nullptr : formats_[static_cast<size_t>(assignment[t])];
    if (tensors_[t].linear) {
      if (format != recipe.type) recipe.rules.push_back(rule_for(tensors_[t], format));
    } else {
      recipe.rules.push_back(rule_for(tensors_[t], format));
    }
  }
  return recipe;
}

const Format& SubstitutedSource::format_of(const std::string& name) const {
  const auto it = replaced_.find(name);
  return it == replaced_.end() ? base_.format_of(name) : *it->second.format;
}

StoredForm SubstitutedSource::form_of(const std::string& name) const {
  const auto it = replaced_.find(name);
  if (it == replaced_.end()) return base_.form_of(name);
  const Tensor& tensor = it->second;
  return {tensor.format, {tensor.rotation[0], tensor.rotation[1]}, base_.form_of(name).output};
}

Tensor SubstitutedSource::load(const std::string& name) {
  const auto it = replaced_.find(name);
  return it == replaced_.end() ? base_.load(name) : it->second;
}

}  // namespace walsh
