#include "model/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/positions.h"

namespace walsh {
namespace {

constexpr int64_t kMaxSequences = 1024;

}  // namespace

Session::Session(const Model& model, const SessionOptions& options)
    : model_(model), capacity_(choose_positions(model.config, options.max_positions)) {
  if (options.sequences < 1 || options.sequences > kMaxSequences) {
    throw Error(ErrorCode::usage, "sequences",
                fmt::format("{} asked for, expected 1 to {}", options.sequences, kMaxSequences));
  }
  executor_ = make_executor(model, capacity_, options);
  positions_.resize(static_cast<size_t>(options.sequences));
  runs_.resize(static_cast<size_t>(options.sequences));
}

void Session::check(std::span<const int32_t> tokens, int64_t more, int64_t sequence) const {
  const int64_t used = position(sequence);
  if (more > capacity_ - used) {
    throw Error(ErrorCode::usage, "context",
                fmt::format("{} more tokens do not fit: {} of {} positions are used", more, used,
                            capacity_));
  }
  for (int32_t token : tokens) {
    if (token < 0 || token >= model_.config.vocab) {
      throw Error(ErrorCode::usage, "token",
                  fmt::format("id {} is outside the vocabulary of {}", token, model_.config.vocab));
    }
  }
}

void Session::forward(std::span<const int32_t> tokens, LogitSink sink, int64_t first_logit,
                      int64_t sequence) {
  const auto count = static_cast<int64_t>(tokens.size());
  check(tokens, count, sequence);
  int64_t& position = positions_[static_cast<size_t>(sequence)];
  const int64_t chunk = executor_->max_rows();
  for (int64_t begin = 0; begin < count; begin += chunk) {
    const int64_t m = std::min(chunk, count - begin);
    const Run run{sequence, position, m};
    batch(tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(m)), {&run, 1}, sink,
          begin, first_logit);
    position += m;
  }
}

void Session::check_decode(std::span<const int32_t> tokens) const {
  const auto count = static_cast<int64_t>(tokens.size());
  if (count > sequences()) {
    throw Error(ErrorCode::usage, "sequences",
                fmt::format("{} tokens for {} sequences", count, sequences()));
  }
  for (int64_t s = 0; s < count; ++s)
    check(tokens.subspan(static_cast<size_t>(s), 1), 1, s);
}

// runs_[0..count) become the next positions of the sequences from `begin` on.
void Session::place_decode(int64_t begin, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    int64_t& position = positions_[static_cast<size_t>(begin + i)];
    runs_[static_cast<size_t>(i)] = {begin + i, position++, 1};
  }
}

void Session::decode(std::span<const int32_t> tokens, LogitSink sink) {
  check_decode(tokens);
  const auto count = static_cast<int64_t>(tokens.size());
  for (int64_t begin = 0; begin < count; begin += executor_->max_rows()) {
    const int64_t m = std::min(executor_->max_rows(), count - begin);
    place_decode(begin, m);
    batch(tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(m)),
          {runs_.data(), static_cast<size_t>(m)}, sink, begin, 0);
  }
}

void Session::start_sampling(const SamplerOptions& options, std::span<const int32_t> history,
                             int64_t sequence) {
  position(sequence);  // refuses one that is not there
  executor_->start_sampling(sequence, options, history);
}

void Session::submit(std::span<const int32_t> tokens, int64_t sequence) {
  const auto count = static_cast<int64_t>(tokens.size());
  check(tokens, count, sequence);
  if (count == 0) throw Error(ErrorCode::usage, "tokens", "at least one token is needed");
  const int64_t chunk = executor_->max_rows();
  for (int64_t begin = 0; begin < count; begin += chunk) {
    const int64_t m = std::min(chunk, count - begin);
    const bool last = begin + m == count;
    int64_t& position = positions_[static_cast<size_t>(sequence)];
    runs_[0] = {sequence, position, m};
    executor_->run(tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(m)),
                   {runs_.data(), 1}, last ? m - 1 : m, last);
    position += m;
  }
  chosen_runs_ = 1;
}

void Session::submit_decode(std::span<const int32_t> tokens) {
  check_decode(tokens);
  const auto count = static_cast<int64_t>(tokens.size());
  if (count > std::min(executor_->max_rows(), executor_->logit_rows())) {
    throw Error(ErrorCode::usage, "sequences",
                fmt::format("{} are more than can be sampled together", count));
  }
  place_decode(0, count);
  chosen_runs_ = count;
  executor_->run(tokens, {runs_.data(), static_cast<size_t>(count)}, 0, true);
}

void Session::submit_chosen() {
  for (int64_t i = 0; i < chosen_runs_; ++i)
    check({}, 1, runs_[static_cast<size_t>(i)].sequence);
  for (int64_t i = 0; i < chosen_runs_; ++i) {
    Run& run = runs_[static_cast<size_t>(i)];
    run.position = positions_[static_cast<size_t>(run.sequence)]++;
    run.rows = 1;
  }
  executor_->run({}, {runs_.data(), static_cast<size_t>(chosen_runs_)}, 0, true);
}

std::span<const int32_t> Session::take() {
  return executor_->sampled();
}

void Session::reset() {
  std::fill(positions_.begin(), positions_.end(), 0);
}

void Session::truncate(int64_t positions, int64_t sequence) {
  if (positions < 0 || positions > position(sequence)) {
    throw Error(ErrorCode::usage, "context",
                fmt::format("cannot keep {} of {} tokens", positions, position(sequence)));
  }
  positions_[static_cast<size_t>(sequence)] = positions;
}

int64_t Session::position(int64_t sequence) const {
  if (sequence < 0 || sequence >= sequences()) {
    throw Error(ErrorCode::usage, "sequence",
                fmt::format("{} is not one of the {} sequences", sequence, sequences()));
  }
  return positions_[static_cast<size_t>(sequence)];
}

// `first_index` is the index of the batch's first token among those of the caller, who wants logits
// from index `first_logit` on.
void Session::batch(std::span<const int32_t> tokens, std::span<const Run> runs, LogitSink sink,
                    int64_t first_index, int64_t first_logit) {
  const auto m = static_cast<int64_t>(tokens.size());
  const int64_t first_row = std::clamp(first_logit - first_index, int64_t{0}, m);
  const int64_t step = executor_->logit_rows();
  executor_->run(tokens, runs, first_row, false);
  for (int64_t row = first_row; row < m; row += step) {
    const int64_t n = std::min(step, m - row);
    if (row > first_row) executor_->logits(row, n);
    for (int64_t i = 0; i < n; ++i)
      sink(first_index + row + i, executor_->logit_row(i));
  }
}

}  // namespace walsh
