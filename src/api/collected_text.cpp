#include "api/collected_text.h"

#include "api/text_options.h"

namespace walsh {

GenerationResult CollectedText::result(const RequestEnd& end, uint64_t seed) const {
  GenerationResult result;
  result.text = shown_;
  result.reason = public_reason(end.reason);
  if (text_.stopped()) {
    result.stop = *text_.stop();
    if (wanted_) result.reason = FinishReason::stop_string;
  }
  result.prompt_tokens = end.prompt_tokens;
  result.cached_tokens = end.cached_tokens;
  result.tokens = end.tokens;
  result.decoded_tokens = end.tokens > 0 ? end.tokens - 1 : 0;
  result.prompt_seconds = end.prompt_seconds;
  result.decode_seconds = end.decode_seconds;
  result.seed = seed;
  return result;
}

}  // namespace walsh
