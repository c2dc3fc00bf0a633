#include "api/text_request.h"

#include <limits>

#include "io/json.h"
#include "schedule/failure.h"
#include "walsh/error.h"

namespace walsh {
namespace {

std::shared_ptr<const grammar::TokenGrammar> grammar_of(const LoadedModel& model,
                                                        const GenerationOptions& options) {
  if (!options.grammar.empty() && !options.json_schema.empty())
    throw Error(ErrorCode::usage, "grammar, json_schema", "only one of them can be enforced");
  if (!options.grammar.empty()) return model.gbnf(options.grammar, "grammar");
  if (options.json_schema.empty()) return nullptr;
  return model.schema(parse_ordered_json(options.json_schema, "json_schema"), "json_schema");
}

FinishReason public_reason(StopReason reason) {
  switch (reason) {
    case StopReason::stop_token:
      return FinishReason::stop_token;
    case StopReason::max_tokens:
      return FinishReason::max_tokens;
    case StopReason::context_full:
      return FinishReason::context_full;
    case StopReason::callback:
      return FinishReason::stopped;
  }
  return FinishReason::stopped;
}

}  // namespace

std::vector<int32_t> prompt_tokens(const LoadedModel& model, std::string_view prompt,
                                   const GenerationOptions& options) {
  if (options.images.empty()) return encode_prompt(model.tokenizer, prompt);
  return encode_prompt(model.tokenizer, model.images->prompt_text(std::string(prompt)));
}

TextRequest text_request(const LoadedModel& model, std::span<const int32_t> prompt,
                         const GenerationOptions& options) {
  TextRequest result;
  result.prompt.assign(prompt.begin(), prompt.end());
  if (!options.images.empty()) {
    const int64_t positions = model.use.max_positions;
    model.images->show(result.prompt, options.images, result.images, "",
                       positions > 0 ? positions : std::numeric_limits<int64_t>::max());
  }
  result.max_tokens = options.max_tokens;
  result.lookup = options.lookup;
  result.most_drafted = options.max_drafted;
  result.sampler = model.generation.sampler(options);
  result.breakers =
      make_breakers(result.sampler, model.tokenizer,
                    options.dry_sequence_breakers ? &*options.dry_sequence_breakers : nullptr);
  result.biases = model.generation.biases(options);
  if (!options.ignore_eos) result.stop_ids = model.generation.stop_ids();
  result.grammar = grammar_of(model, options);
  return result;
}

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
