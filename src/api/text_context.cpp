#include "api/text_context.h"

#include <algorithm>
#include <string>

#include "api/text_options.h"
#include "base/stop.h"
#include "generate/generator.h"

namespace walsh {
namespace {

GenerateOptions generate_options(TextOptions text, const GenerationOptions& options) {
  GenerateOptions generation;
  static_cast<ChoiceOptions&>(generation) = std::move(text);
  generation.lookup = options.lookup;
  generation.max_tokens = options.max_tokens;
  return generation;
}

}  // namespace

TextContext::TextContext(const LoadedModel& model, const SessionOptions& use)
    : model_(model), session_(model.model, use) {}

Session& TextContext::empty() {
  tokens_.clear();
  session_.reset();
  return session_;
}

// Truncates the session to a prefix of `prompt`; returns its length, less than all of `prompt`.
int64_t TextContext::keep(std::span<const int32_t> prompt) {
  const auto most = prompt.empty() ? prompt.end() : prompt.end() - 1;
  const auto [end, other] = std::mismatch(prompt.begin(), most, tokens_.begin(), tokens_.end());
  const int64_t known = session_.reachable(0, end - prompt.begin());
  tokens_.clear();
  if (known == 0) {
    session_.reset();
  } else {
    session_.truncate(known);
  }
  return known;
}

GenerationResult TextContext::generate(std::span<const int32_t> prompt,
                                       const GenerationOptions& options,
                                       const TextCallback& on_text) {
  GenerateOptions generation = generate_options(text_options(model_, options), options);
  CollectedText text(model_.tokenizer, prompt, options.stop, on_text);
  if (!options.keep_context) tokens_.clear();
  generation.known = keep(prompt);
  const GenerateResult done = walsh::generate(session_, prompt, generation,
                                              [&](int32_t token) { return text.push(token); });
  if (options.keep_context && done.intact) {
    tokens_.assign(prompt.begin(), prompt.end());
    tokens_.insert(tokens_.end(), done.tokens.begin(), done.tokens.end());
    tokens_.resize(static_cast<size_t>(session_.position()));
  }
  const StopScope whole(kNotStopped);
  text.finish();
  RequestEnd end;
  end.reason = done.reason;
  end.prompt_tokens = done.prompt_tokens;
  end.cached_tokens = generation.known;
  end.tokens = static_cast<int64_t>(done.tokens.size());
  end.prompt_seconds = done.prompt_seconds;
  end.decode_seconds = done.decode_seconds;
  GenerationResult result = text.result(end, generation.sampler.seed);
  result.decoded_tokens = done.decoded_tokens;
  result.drafted = done.drafted;
  result.drafted_right = done.drafted_right;
  return result;
}

}  // namespace walsh
