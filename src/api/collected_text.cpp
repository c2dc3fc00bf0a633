#include "api/collected_text.h"

#include "api/text_options.h"
#include "schedule/failure.h"

namespace walsh {

void CollectedText::emit(const std::string& piece) {
  if (!wanted_ || piece.empty()) return;
  shown_ += piece;
  wanted_ = !on_text_ || on_text_(piece);
}

bool CollectedText::chosen(const ScoredToken& token) {
  try {
    emit(text_.push(token.token));
    return wanted_ && !text_.stopped();
  } catch (...) {
    thrown_ = std::current_exception();
    return false;
  }
}

// Gives out what was held back.
void CollectedText::ended(const RequestEnd& end) {
  try {
    if (!thrown_) emit(text_.finish());
  } catch (...) {
    thrown_ = std::current_exception();
  }
  if (!on_end_) return;
  if (!thrown_) return on_end_(result(end), nullptr);
  const auto error = failure_of([&] { std::rethrow_exception(thrown_); });
  on_end_(result(end), &*error);
}

void CollectedText::failed(const Error& error, const RequestEnd& end) {
  if (on_end_) on_end_(result(end), &error);
}

GenerationResult CollectedText::result(const RequestEnd& end) const {
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
  result.decoded_tokens = end.decoded_tokens;
  result.prompt_seconds = end.prompt_seconds;
  result.decode_seconds = end.decode_seconds;
  result.drafted = end.drafted;
  result.drafted_right = end.drafted_right;
  result.seed = seed_;
  return result;
}

}  // namespace walsh
