#include "api/text_options.h"

#include "io/json.h"
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

}  // namespace

TextRequest text_request(const LoadedModel& model, std::span<const int32_t> prompt,
                         const GenerationOptions& options) {
  TextRequest result;
  result.prompt.assign(prompt.begin(), prompt.end());
  result.max_tokens = options.max_tokens;
  result.lookup = options.lookup;
  result.sampler = model.generation.sampler(options);
  result.breakers =
      make_breakers(result.sampler, model.tokenizer,
                    options.dry_sequence_breakers ? &*options.dry_sequence_breakers : nullptr);
  result.biases = model.generation.biases(options);
  if (!options.ignore_eos) result.stop_ids = model.generation.stop_ids();
  result.grammar = grammar_of(model, options);
  return result;
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

}  // namespace walsh
