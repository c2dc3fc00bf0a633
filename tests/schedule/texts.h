// Lets a scheduler continue texts, and says what they should be, for tests.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "generate/sampler.h"
#include "model/session.h"
#include "schedule/scheduler.h"

namespace walsh::test {

// Records what a sink was told.
class Recorder : public RequestSink {
 public:
  void prompt_scored(std::span<const ScoredToken> scores) override {
    prompt.assign(scores.begin(), scores.end());
  }
  bool chosen(const ScoredToken& token) override {
    EXPECT_FALSE(finished());
    scored.push_back(token);
    tokens.push_back(token.token);
    return (!wanted || wanted()) && static_cast<int64_t>(tokens.size()) != enough;
  }
  void ended(const RequestEnd& what) override {
    EXPECT_FALSE(finished());
    end = what;
  }
  void failed(const Error& what, const RequestEnd& so_far) override {
    EXPECT_FALSE(finished());
    error = what;
    failed_at = so_far;
  }
  bool finished() const { return end || error; }

  std::function<bool()> wanted;  // asked for every token
  int64_t enough = -1;           // so many tokens are wanted
  std::vector<ScoredToken> prompt, scored;
  std::vector<int32_t> tokens;
  std::optional<RequestEnd> end;
  std::optional<Error> error;
  RequestEnd failed_at;
};

// Steps until everything has ended.
inline void finish(Scheduler& scheduler) {
  while (scheduler.step()) {
  }
}

// Returns the tokens of a text by its definition: a token after the other, each evaluated by itself
// and chosen on the host.
inline std::vector<int32_t> plain_text(const Model& model, const TextRequest& request,
                                       int64_t positions) {
  Session session(model, {positions});
  Sampler sampler(request.sampler, request.biases, request.breakers);
  std::vector<int32_t> tokens, next = request.prompt;
  for (const int32_t token : request.prompt)
    sampler.read(token);
  while (request.max_tokens < 0 || std::ssize(tokens) < request.max_tokens) {
    if (session.position() == session.capacity()) break;
    int32_t token = -1;
    session.forward(
        next, [&](int64_t, std::span<const float> logits) { token = sampler.sample(logits); },
        std::ssize(next) - 1);
    if (request.stops(token)) break;
    sampler.accept(token);
    tokens.push_back(token);
    next = {token};
  }
  return tokens;
}

}  // namespace walsh::test
