#include "model/split_executor.h"

#include <algorithm>

#include "model/split.h"

namespace walsh {

SplitExecutor::SplitExecutor(const Model& model, Parts parts)
    : hidden_(model.config.hidden),
      pool_(model.pool()),
      parts_(std::move(parts)),
      max_rows_(std::min(parts_[0]->max_rows(), parts_[1]->max_rows())),
      rows_(static_cast<size_t>(max_rows_ * hidden_)) {
  describe(model);
}

// Lists which part computes which layers. If both have something of a layer, the second part
// computes what comes before the first one's experts. Consecutive layers of one part are one step.
void SplitExecutor::describe(const Model& model) {
  for (size_t i = 0; i < model.config.layers.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    const LayerDesc& front = model.parts[kLast].config.layers[i];
    for (const size_t part : {kLast, size_t{0}}) {
      if (parts_[part]->steps().layers[i].steps.empty()) continue;
      const bool takes = part == 0 && experts_elsewhere(front) && front.mlp.width > 0;
      if (steps_.empty() || steps_.back().part != part || takes)
        steps_.push_back({part, layer, layer, takes});
      steps_.back().end = layer + 1;
    }
  }
}

int64_t SplitExecutor::max_prompts() const {
  return std::min(parts_[0]->max_prompts(), parts_[1]->max_prompts());
}

void SplitExecutor::run(const Batch& batch) {
  m_ = wanted_ = 0;
  first_wanted_ = -1;
  for (const Run& run : batch.runs) {
    m_ += run.rows;
    wanted_ += run.logits;
    if (run.logits > 0 && first_wanted_ < 0) first_wanted_ = m_ - run.logits;
  }
  if (first_wanted_ < 0) first_wanted_ = m_;
  first_wanted_ = std::min(first_wanted_, batch.first_read);
  parts_[0]->run_parts(batch, [&] { parts_[1]->run_parts(batch, [&] { compute(); }); });
}

// A step computes some rows of the batch; row 0 of `branch` belongs to the first of them.
void SplitExecutor::compute() {
  size_t at = 0;
  parts_[at]->embed();
  for (const Step& step : steps_) {
    const ModelSteps& steps = parts_[step.part]->steps();
    const auto& layer = steps.layers[static_cast<size_t>(step.begin)];
    const int64_t first = layer.steps.front().only_wanted ? first_wanted_ : 0;
    hand_over(Rows::stream, at, step.part, first, m_ - first);
    if (step.takes_branch) hand_over(Rows::branch, at, step.part, 0, m_ - first);
    at = step.part;
    parts_[at]->run_layers(step.begin, step.end);
    // This wakes sleeping threads while the GPU computes, instead of afterwards.
    if (at == kLast) pool_.run([](int, int) {});
  }
  hand_over(Rows::stream, at, kLast, first_wanted_, m_ - first_wanted_);
  if (wanted_ > 0) logits(0, std::min(logit_rows(), wanted_));
}

void SplitExecutor::hand_over(Rows which, size_t from, size_t to, int64_t first, int64_t count) {
  if (from == to || count == 0) return;
  parts_[from]->read_rows(which, first, count, rows_.data());
  parts_[to]->write_rows(which, first, count, rows_.data());
}

void SplitExecutor::copy_pages(std::span<const PageCopy> copies) {
  for (const auto& part : parts_)
    part->copy_pages(copies);
}

void SplitExecutor::fork(int64_t from, int64_t to) {
  for (const auto& part : parts_)
    part->fork(from, to);
}

void SplitExecutor::copy_state(int32_t from, int32_t to) {
  for (const auto& part : parts_)
    part->copy_state(from, to);
}

}  // namespace walsh
