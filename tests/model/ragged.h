// Evaluates random batches of sequences that open, grow, fork, are truncated and close, and
// compares them with each sequence alone.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "model/session.h"
#include "model_support.h"

namespace walsh::test {

class RaggedBatches {
 public:
  // An act is an operation on a sequence: tokens to append, or a length to truncate to.
  struct Act {
    std::vector<int32_t> tokens;
    int64_t kept = -1;
  };
  struct Result {
    std::vector<Act> history;
    std::vector<float> logits;  // of its last token
  };

  RaggedBatches(const Model& model, const SessionOptions& options, uint64_t seed)
      : session_(model, options), random_(seed) {
    live_[0] = {};
  }

  void run(int steps) {
    for (int step = 0; step < steps; ++step) {
      const uint64_t choice = random_.below(10);
      if (choice < 1) open();
      if (choice == 1 || choice == 2) fork();
      if (choice == 3) take_back();
      if (choice == 4) close();
      evaluate();
    }
    while (!live_.empty())
      finish(live_.begin()->first);
    EXPECT_EQ(session_.pages().free_pages(), session_.pages().shape().pages);
  }

  const std::vector<Result>& results() const { return results_; }
  int refusals() const { return refusals_; }
  int forks() const { return forks_; }
  int returns() const { return returns_; }  // to other positions than the first

  // Returns the logits of a history when nothing else is in the session. What a recurrent model
  // took back was as if it had never been there.
  static std::vector<float> alone(const Model& model, int64_t positions,
                                  const std::vector<Act>& history) {
    Session session(model, {positions});
    if (is_recurrent(model.config)) {
      std::vector<int32_t> tokens;
      for (const Act& act : history) {
        if (act.kept >= 0) tokens.resize(static_cast<size_t>(act.kept));
        tokens.insert(tokens.end(), act.tokens.begin(), act.tokens.end());
      }
      return all_logits(session, tokens).back();
    }
    std::vector<float> last;
    for (const Act& act : history) {
      if (act.kept >= 0) {
        session.truncate(act.kept);
      } else {
        last = all_logits(session, act.tokens).back();
      }
    }
    return last;
  }

 private:
  int64_t any() {
    auto it = live_.begin();
    std::advance(it, random_.below(live_.size()));
    return it->first;
  }

  void open() {
    if (static_cast<int64_t>(live_.size()) == session_.sequences()) {
      EXPECT_THROW(session_.open(), Error);
      return;
    }
    live_[session_.open()] = {};
  }

  void fork() {
    if (live_.empty() || static_cast<int64_t>(live_.size()) == session_.sequences()) return;
    const int64_t from = any();
    const int64_t length = session_.position(from);
    auto kept = static_cast<int64_t>(random_.below(static_cast<uint64_t>(length) + 1));
    kept = session_.reachable(from, kept);
    const int64_t to = session_.fork(from, kept);
    EXPECT_EQ(session_.position(to), kept);
    live_[to] = live_[from];
    live_[to].history.push_back({{}, kept});
    live_[to].logits.clear();  // of another token
    ++forks_;
  }

  void take_back() {
    if (live_.empty()) return;
    const int64_t sequence = any();
    const auto length = static_cast<uint64_t>(session_.position(sequence));
    auto kept = static_cast<int64_t>(length - std::min(length, random_.below(90)));
    const int64_t reachable = session_.reachable(sequence, kept);
    session_.truncate(kept, sequence);
    kept = session_.position(sequence);
    EXPECT_EQ(kept, reachable);
    if (kept > 0) ++returns_;
    live_[sequence].history.push_back({{}, kept});
    live_[sequence].logits.clear();
  }

  void close() {
    if (live_.size() > 1) finish(any());
  }

  void finish(int64_t sequence) {
    session_.close(sequence);
    EXPECT_THROW(session_.position(sequence), Error);
    if (!live_[sequence].logits.empty()) results_.push_back(std::move(live_[sequence]));
    live_.erase(sequence);
  }

  // Evaluates a few tokens or a long piece for some of the sequences.
  void evaluate() {
    if (live_.empty()) open();
    const auto vocab =
        std::min<uint64_t>(500, static_cast<uint64_t>(session_.model().config.vocab));
    std::vector<Act> acts;
    std::vector<int64_t> sequences;
    for (const auto& [sequence, result] : live_) {
      if (random_.below(4) == 0) continue;
      const uint64_t kind = random_.below(6);
      const uint64_t rows = kind < 4    ? 1
                            : kind == 4 ? 2 + random_.below(9)
                                        : 20 + random_.below(80);
      const int64_t room = session_.capacity() - session_.position(sequence);
      if (static_cast<int64_t>(rows) > room) continue;
      Act act;
      for (uint64_t i = 0; i < rows; ++i)
        act.tokens.push_back(static_cast<int32_t>(random_.below(vocab)));
      acts.push_back(std::move(act));
      sequences.push_back(sequence);
    }
    std::vector<SequenceTokens> batch;
    for (size_t i = 0; i < acts.size(); ++i)
      batch.push_back({sequences[i], acts[i].tokens, random_.below(5) == 0 ? 0 : 1});
    for (SequenceTokens& item : batch)
      if (is_recurrent(session_.model().config))
        item.snapshot = static_cast<int64_t>(random_.below(item.tokens.size() + 1));
    std::vector<std::vector<float>> logits(batch.size());
    try {
      session_.evaluate(batch, [&](size_t item, int64_t index, std::span<const float> row) {
        EXPECT_EQ(index + 1, static_cast<int64_t>(batch[item].tokens.size()));
        logits[item].assign(row.begin(), row.end());
      });
    } catch (const Error& e) {
      ASSERT_EQ(e.code(), ErrorCode::limit) << e.what();
      ++refusals_;
      for (const auto& [sequence, result] : live_)
        EXPECT_EQ(session_.position(sequence), length_of(result.history));
      close();
      return;
    }
    for (size_t i = 0; i < batch.size(); ++i) {
      EXPECT_EQ(logits[i].empty(), batch[i].logits == 0);
      live_[sequences[i]].history.push_back(std::move(acts[i]));
      live_[sequences[i]].logits = std::move(logits[i]);
    }
  }

  static int64_t length_of(const std::vector<Act>& history) {
    int64_t length = 0;
    for (const Act& act : history)
      length = act.kept >= 0 ? act.kept : length + static_cast<int64_t>(act.tokens.size());
    return length;
  }

  Session session_;
  Random random_;
  std::map<int64_t, Result> live_;
  std::vector<Result> results_;
  int refusals_ = 0, forks_ = 0, returns_ = 0;
};

}  // namespace walsh::test
