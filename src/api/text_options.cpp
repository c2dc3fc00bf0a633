#include "api/text_options.h"

#include <fmt/format.h>

#include <cfloat>

#include "io/json.h"
#include "walsh/error.h"

namespace walsh {
namespace {

std::vector<TokenBias> biases_of(const LoadedModel& model, const GenerationOptions& options) {
  std::vector<TokenBias> biases;
  for (const auto& [token, bias] : options.logit_bias) {
    if (token < 0 || token >= model.model.config.vocab || !(bias <= FLT_MAX))
      throw Error(ErrorCode::usage, "logit-bias",
                  fmt::format("{} for token {}, expected a number for a token below {}", bias,
                              token, model.model.config.vocab));
    biases.push_back({token, bias});
  }
  return biases;
}

std::shared_ptr<const grammar::TokenGrammar> grammar_of(const LoadedModel& model,
                                                        const GenerationOptions& options) {
  if (!options.grammar.empty() && !options.json_schema.empty())
    throw Error(ErrorCode::usage, "grammar, json_schema", "only one of them can be enforced");
  if (!options.grammar.empty()) return model.gbnf(options.grammar, "grammar");
  if (options.json_schema.empty()) return nullptr;
  return model.schema(parse_ordered_json(options.json_schema, "json_schema"), "json_schema");
}

}  // namespace

TextOptions text_options(const LoadedModel& model, const GenerationOptions& options) {
  TextOptions result;
  result.sampler = model.generation.sampler(options);
  result.breakers =
      make_breakers(result.sampler, model.tokenizer,
                    options.dry_sequence_breakers ? &*options.dry_sequence_breakers : nullptr);
  result.biases = biases_of(model, options);
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
