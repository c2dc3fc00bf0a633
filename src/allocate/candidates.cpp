#include "allocate/candidates.h"

#include <algorithm>

#include "allocate/stand_in.h"
#include "arch/plan.h"
#include "walsh/error.h"

namespace walsh {
namespace {

bool named_by_a_rule(const Recipe& recipe, const std::string& tensor, StepBudget& steps) {
  return std::any_of(recipe.rules.begin(), recipe.rules.end(),
                     [&](const TensorRule& rule) { return rule.matches(tensor, steps); });
}

// Returns one rule for all members of a tensor.
TensorRule rule_for(const CandidateTensor& tensor, const Format* format) {
  std::string pattern = tensor.name;
  if (const size_t star = pattern.find('*'); star != std::string::npos)
    pattern =
        "re:^\\Q" + pattern.substr(0, star) + "\\E[0-9]+\\Q" + pattern.substr(star + 1) + "\\E$";
  TensorRule rule = parse_ignore(pattern);
  rule.format = format;
  return rule;
}

}  // namespace

Candidates::Candidates(const OpenCompressor& open, Recipe base, std::vector<const Format*> formats,
                       bool whole_file)
    : base_(std::move(base)), formats_(std::move(formats)), whole_file_(whole_file) {
  check_formats();
  const int count = static_cast<int>(formats_.size()) + (whole_file_ ? 1 : 0);
  for (int c = 0; c < count; ++c) {
    compressors_.push_back(open(candidate_recipe(c)));
    compressors_.back()->settle_formats();
  }
  const ModelPlan model =
      read_plan(compressors_[0]->config_json(), compressors_[0]->path() + ": config.json");
  std::map<std::string, size_t> kinds;  // it counts the experts of each kind
  StepBudget steps(kRuleSteps);
  for (const TensorPlan& plan : compressors_[0]->tensors()) {
    if (plan.site < 0 || named_by_a_rule(base_, plan.name, steps)) continue;
    if ((!plan.linear && !whole_file_) || compressors_[0]->is_ahead(plan.site)) continue;
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
}

// Channels of an input are balanced only if all matrices that read it are rotated; a mix of
// candidates must not change that.
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

Recipe Candidates::stand_in_recipe() const {
  Recipe recipe = base_;
  recipe.type = &stand_in_for(formats_);
  if (whole_file_) recipe.embed_type = recipe.head_type = recipe.type;
  return recipe;
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

}  // namespace walsh
