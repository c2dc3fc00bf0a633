// From a path to a model that is ready to run: what Engine and the commands have in common.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "eval/evaluator.h"
#include "formats/weight_source.h"
#include "generate/generation_config.h"
#include "grammar/grammar_cache.h"
#include "model/model.h"
#include "quantize/recipe/recipe.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace walsh {

// A model with the texts that say how to use it.
struct LoadedModel {
  std::string path;
  Model model;
  Tokenizer tokenizer;
  GenerationConfig generation;
  std::optional<ChatTemplate> chat;  // if it has one that is understood
  std::vector<std::string> notes;    // as WeightSource::notes
  SessionOptions use = {};           // what it was loaded for, with the number of positions
  // Of its vocabulary, shared by everybody who generates texts.
  std::shared_ptr<grammar::GrammarCache> grammars = std::make_shared<grammar::GrammarCache>();

  // What was asked for lately is known at once. `where` is for messages. Throws as gbnf_grammar and
  // schema_grammar.
  std::shared_ptr<const grammar::TokenGrammar> gbnf(const std::string& text,
                                                    const std::string& where) const {
    return gbnf_grammar(*grammars, tokenizer, model.config.vocab, text, where);
  }
  std::shared_ptr<const grammar::TokenGrammar> schema(const OrderedJson& schema,
                                                      const std::string& where) const {
    return schema_grammar(*grammars, tokenizer, model.config.vocab, schema, where);
  }
};

// In place of a number of positions: as many as the model has and memory has room for
// (Model::fitting_positions).
inline constexpr int64_t kFittingPositions = -1;

// A chat template in place of a model's own.
struct TemplateText {
  std::string text, where;  // `where` is for messages
};

// Opens a walsh file or a Hugging Face folder and reads all of it; a folder is compressed on the
// way if `recipe` is given. options.use.max_positions may be kFittingPositions. What is wrong with
// `generation` or `chat_template` is told before the weights are read. Throws bad_input, also for a
// model without a tokenizer, io or limit.
LoadedModel load_model(const std::string& path, const Recipe* recipe, const LoadOptions& options,
                       const GenerationOptions* generation = nullptr,
                       const TemplateText* chat_template = nullptr);

// The tokens of a prompt: with special ones; an empty prompt begins with BOS.
std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view text);

// How texts are scored with it: BOS stands for the first token of a window where the tokenizer puts
// it before a text.
EvalOptions eval_options(const LoadedModel& model, const WindowOptions& windows);

// Two models are compared on the same tokens: throws usage naming the reference if its tokenizer
// makes others of `text` than `tokens`, those of the model.
void check_same_tokens(const LoadedModel& model, const LoadedModel& reference,
                       std::string_view text, const std::vector<int32_t>& tokens);

// Throws bad_input if the source has no tokenizer or one that is not understood.
Tokenizer read_tokenizer(const WeightSource& source);

// Refuses what load_model would refuse of a model's config, tokenizer and generation config, before
// work that would be in vain. Only the tokenizer may be missing: models without one can be measured
// in their speed.
void check_texts(const WeightSource& source);

// The two steps of it for those who need no tokenizer.
std::unique_ptr<WeightSource> open_weights(const std::string& path, const Recipe* recipe,
                                           ThreadPool& pool);
Model load_weights(WeightSource& source, const LoadOptions& options);

}  // namespace walsh
