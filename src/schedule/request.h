// A text that somebody wants continued, and what they are told of it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "generate/generator.h"
#include "walsh/error.h"

namespace walsh {

struct TextRequest : ChoiceOptions {
  std::vector<int32_t> prompt;
  int64_t max_tokens = -1;  // -1: until the context is full
  // Natural logarithms of probabilities (before any sampling option): of each token that is chosen
  // and of so many best ones; -1: none.
  int logprobs = -1;
  bool prompt_logprobs = false;  // the same for the tokens of the prompt behind the first
  bool shares_prefix = true;     // takes over what is known of its beginning
  // Beginnings are shared among texts of one owner only: what was taken over shows in figures and
  // times, from which anybody could guess the texts of others token by token.
  std::string owner;
};

struct TokenLogprob {
  int32_t token = -1;
  float logprob = 0;
};

struct ScoredToken {
  int32_t token = -1;
  float logprob = 0;               // if they are wanted
  std::vector<TokenLogprob> best;  // as many as are wanted, the best first
};

struct RequestEnd {
  StopReason reason = StopReason::max_tokens;    // callback: it was cancelled, or the sink said so
  int64_t prompt_tokens = 0, cached_tokens = 0;  // of these, not evaluated again
  int64_t tokens = 0;                            // generated, stop token not counted
  double queue_seconds = 0, prompt_seconds = 0, decode_seconds = 0;
};

// Called by the thread that runs the scheduler, and never again after ended() or failed(). It must
// not throw nor take long: everybody waits for it.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  // Before the first token if prompt_logprobs: those of the prompt behind the first one.
  virtual void prompt_scored(std::span<const ScoredToken>) {}
  // The next token; false: no more are wanted.
  virtual bool chosen(const ScoredToken& token) = 0;
  virtual void ended(const RequestEnd& end) = 0;
  virtual void failed(const Error& error) = 0;
};

// A text and who is told of it.
struct NewText {
  TextRequest request;
  std::shared_ptr<RequestSink> sink;
};

}  // namespace walsh
