#include "model/split_executor.h"

#include <algorithm>

#include "model/split.h"

namespace walsh {

SplitExecutor::SplitExecutor(const Model& model, Parts parts)
    : hidden_(model.config.hidden),
      parts_(std::move(parts)),
      max_rows_(std::min(parts_[0]->max_rows(), parts_[1]->max_rows())),
      stream_(static_cast<size_t>(max_rows_ * hidden_)) {
  describe(model);
}

// Mixers come before what follows them in a layer; neighbouring layers of one part are a step.
void SplitExecutor::describe(const Model& model) {
  const auto add = [&](int64_t layer, auto has) {
    for (size_t part = 0; part < parts_.size(); ++part) {
      if (!has(model.parts[part].config.layers[static_cast<size_t>(layer)])) continue;
      if (steps_.empty() || steps_.back().part != part) steps_.push_back({part, layer, layer});
      steps_.back().end = layer + 1;
    }
  };
  for (size_t i = 0; i < model.config.layers.size(); ++i) {
    add(static_cast<int64_t>(i), has_mixer);
    add(static_cast<int64_t>(i), has_feed_forward);
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
  parts_[0]->run_parts(batch, [&] { parts_[1]->run_parts(batch, [&] { compute(); }); });
}

void SplitExecutor::compute() {
  size_t at = 0;
  parts_[at]->embed();
  for (const Step& step : steps_) {
    const ForwardPass& pass = parts_[step.part]->pass();
    const bool only_wanted = pass.only_wanted_rows(pass.layer(step.begin).front());
    hand_over(at, step.part, only_wanted ? first_wanted_ : 0);
    at = step.part;
    parts_[at]->run_layers(step.begin, step.end);
  }
  hand_over(at, kLast, first_wanted_);
  if (wanted_ > 0) logits(0, std::min(logit_rows(), wanted_));
}

// The rows of the stream from `first` on.
void SplitExecutor::hand_over(size_t from, size_t to, int64_t first) {
  if (from == to || first == m_) return;
  parts_[from]->read_stream(first, m_ - first, stream_.data());
  parts_[to]->write_stream(first, m_ - first, stream_.data());
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
