// A request names a text to be continued; its sink receives the tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "generate/embedding_config.h"
#include "generate/text_chooser.h"
#include "schedule/prompt_images.h"
#include "walsh/error.h"

namespace walsh {

struct TextRequest : ChoiceOptions {
  std::vector<int32_t> prompt;
  std::vector<PromptImage> images;  // They are in the order of their positions.
  // At most this many tokens are generated; -1: until the context is full.
  int64_t max_tokens = -1;
  // Natural logarithms of probabilities (before any sampling option) are wanted of each token that
  // is chosen and of this many best ones; -1: of none.
  int logprobs = -1;
  // If true, the tokens of the prompt after the first get these, too.
  bool prompt_logprobs = false;
  // If true, it takes over what is known of its beginning.
  bool shares_prefix = true;
  // Other than none: nothing is generated, and the sink gets what is read (RequestSink::read).
  Reading reading = Reading::none;
  // Tokens are drafted where the text repeats itself (generate/ngram.h), and so chosen on the host.
  // The text is the same on the CPU; on a GPU logits of several rows are rounded differently. With
  // recurrent layers SessionOptions::revocable has to be set.
  bool lookup = false;
  int64_t most_drafted = -1;  // At most this many tokens are drafted for a step; -1: any number.
  // The place (Scheduler::places) that it gets if that is free; -1: any.
  int64_t place = -1;
  // A text that fills the context goes on without a part of it: the first `keep` tokens stay (-1:
  // the prompt; at most half of the context), half of the rest is dropped, and what is after it is
  // evaluated again at its new positions. A prompt that is too long is cut in the same way. Not
  // for texts with images.
  bool shifts = false;
  int64_t keep = 0;
  // Only texts of one owner share beginnings: figures and times show what was taken over, and
  // anybody could guess the texts of others from them, token by token.
  std::string owner;
};

struct TokenLogprob {
  int32_t token = -1;
  float logprob = 0;
};

struct ScoredToken {
  int32_t token = -1;
  float logprob = 0;               // It is set if requested.
  std::vector<TokenLogprob> best;  // There are as many as requested, the best first.
};

struct RequestEnd {
  // StopReason::callback means that the request was cancelled, or its sink returned false.
  StopReason reason = StopReason::max_tokens;
  // The prompt has `cached_tokens` that were not evaluated again.
  int64_t prompt_tokens = 0, cached_tokens = 0;
  int64_t tokens = 0;   // This many were generated, without a stop token.
  int64_t dropped = 0;  // The context lost this many (TextRequest::shifts).
  // These were chosen after the first token, which comes with the prompt; a stop token counts.
  int64_t decoded_tokens = 0;
  // So many tokens were drafted, and so many of these were right.
  int64_t drafted = 0, drafted_right = 0;
  double queue_seconds = 0, prompt_seconds = 0;
  double decode_seconds = 0;  // The time of the sink is left out.
};

// The scheduler's thread calls these functions, and never again after ended() or failed(). They
// must not throw nor block, since all requests wait for them.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  // Is called with prompt_logprobs before the first token, with the scores of the prompt's tokens
  // after its first one.
  virtual void prompt_scored(std::span<const ScoredToken>) {}
  // Is called before the end of a text that is read: a state, [hidden], or logits, [vocab].
  virtual void read(std::span<const float>) {}
  // Delivers the next token; returns false if no more are wanted.
  virtual bool chosen(const ScoredToken& token) = 0;
  virtual void ended(const RequestEnd& end) = 0;
  // `end` tells how far the request had come.
  virtual void failed(const Error& error, const RequestEnd& end) = 0;
};

struct NewText {
  TextRequest request;
  std::shared_ptr<RequestSink> sink;
};

}  // namespace walsh
