// The generation loop: prompt, then one token after the other until something stops it.
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
  int64_t known = 0;  // tokens of the prompt that are in the session already, not all of them
};

enum class StopReason : uint8_t { stop_token, max_tokens, context_full, callback };

struct GenerateResult {
  std::vector<int32_t> tokens;
  StopReason reason = StopReason::max_tokens;
  bool intact = true;  // false: the session has to be reset before it is used again
  int64_t prompt_tokens = 0;
  double prompt_seconds = 0;
  int64_t decoded_tokens = 0;              // evaluated one by one; the first comes with the prompt
  double decode_seconds = 0;               // without the callback
  int64_t drafted = 0, drafted_right = 0;  // by the look-up

  double prompt_tokens_per_second() const { return rate(prompt_tokens, prompt_seconds); }
  double decode_tokens_per_second() const { return rate(decoded_tokens, decode_seconds); }

 private:
  static double rate(int64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  }
};

// Called with each token; false ends the generation after it.
using TokenCallback = std::function<bool(int32_t token)>;

// Evaluates `prompt` but for its `known` tokens after what is in the session and continues it.
// Throws usage if nothing is left to evaluate or does not fit into the context. A request to stop
// (walsh/stop.h) throws interrupted while the prompt is evaluated and ends the text as the callback
// does later; the session then has to be reset.
GenerateResult generate(Session& session, std::span<const int32_t> prompt,
                        const GenerateOptions& options, const TokenCallback& callback = {});

}  // namespace walsh
