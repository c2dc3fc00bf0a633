// The generation loop: evaluates the prompt, then one token after the other until a stop condition.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "generate/text_chooser.h"
#include "model/session.h"

namespace walsh {

// What keeps tokens from being chosen on the device is a bias or a grammar (ChoiceOptions).
struct GenerateOptions : ChoiceOptions {
  int64_t max_tokens = -1;  // 0: only the prompt is evaluated; -1: until the context is full
  // Several tokens are evaluated at once where the text repeats itself (generate/ngram.h). The text
  // is the same on the CPU; on a GPU logits are rounded differently, and tokens are chosen on the
  // host. Has no effect with coded keys and values, of which no token can be taken back.
  bool lookup = false;
  int64_t known = 0;  // tokens of the prompt that are in the session already; fewer than all
};

struct GenerateResult {
  std::vector<int32_t> tokens;
  StopReason reason = StopReason::max_tokens;
  bool intact = true;  // false: the session must be reset before it is used again
  int64_t prompt_tokens = 0;
  double prompt_seconds = 0;
  int64_t decoded_tokens = 0;              // not counting the first, which comes with the prompt
  double decode_seconds = 0;               // without the time of the callback
  int64_t drafted = 0, drafted_right = 0;  // tokens by lookup

  double prompt_tokens_per_second() const { return rate(prompt_tokens, prompt_seconds); }
  double decode_tokens_per_second() const { return rate(decoded_tokens, decode_seconds); }

 private:
  static double rate(int64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  }
};

// Called with each token; false ends the generation after it.
using TokenCallback = std::function<bool(int32_t token)>;

// Evaluates `prompt`, except for its `known` tokens, after what is in the session, and continues
// it. Throws usage if nothing is left to evaluate or it does not fit into the context. A stop
// request (walsh/stop.h) throws interrupted during the prompt, and later ends the text like the
// callback; the session then has to be reset.
GenerateResult generate(Session& session, std::span<const int32_t> prompt,
                        const GenerateOptions& options, const TokenCallback& callback = {});

}  // namespace walsh
