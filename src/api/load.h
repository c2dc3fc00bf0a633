// Opens a model from a path, ready to run, for Engine and the commands.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/image_reader.h"
#include "codec/weight_source.h"
#include "eval/evaluator.h"
#include "generate/draft_source.h"
#include "generate/embedding_config.h"
#include "generate/generation_config.h"
#include "grammar/grammar_cache.h"
#include "io/checksum.h"
#include "model/model.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace walsh {

struct DraftModel;
struct Recipe;

// Holds a model with its tokenizer, chat template and generation config.
struct LoadedModel {
  std::string path;
  Model model;
  Tokenizer tokenizer;
  GenerationConfig generation;
  std::optional<ChatTemplate> chat;  // It is set if the model has one that can be parsed.
  std::vector<std::string> notes;    // WeightSource::notes explains them.
  // It was loaded for this use, with the decided number of positions.
  SessionOptions use = {};
  // All who generate texts share these grammars for the vocabulary.
  std::shared_ptr<grammar::GrammarCache> grammars = std::make_shared<grammar::GrammarCache>();
  // This drafts its texts (draft_model.h). It may read the weights of `model`, which therefore
  // stays with it.
  std::shared_ptr<DraftModel> draft = nullptr;
  EmbeddingConfig embedding = {};
  bool folded = false;  // a rotation is folded into its residual stream
  // This puts images into its prompts.
  std::shared_ptr<const ImageReader> images =
      std::make_shared<ImageReader>("the model takes only text");
  Checksum config_checksum = {};  // This is the checksum of config.json.

  // Returns what drafts its texts; null: nothing.
  DraftSource* drafts() const;
  // Recently used grammars are cached. `where` is for messages. Throws as gbnf_grammar and
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

// This as a number of positions means as many as the model supports and memory has room for
// (Model::fitting_positions).
inline constexpr int64_t kFittingPositions = -1;

// This chat template replaces the model's own.
struct TemplateText {
  std::string text, where;  // `where` is for messages
};

// Reads all of a source. options.use.max_positions may be kFittingPositions. Errors in
// `generation` and `chat_template` are reported before the weights are read. Throws bad_input, also
// for a model without a tokenizer, io or limit.
LoadedModel load_model(WeightSource& source, const std::string& path, const LoadOptions& options,
                       const GenerationOptions* generation = nullptr,
                       const TemplateText* chat_template = nullptr);
// Opens a walsh file or a Hugging Face folder and does the same; a folder is compressed while
// loading if `recipe` is given (open.cpp).
LoadedModel load_model(const std::string& path, const Recipe* recipe, const LoadOptions& options,
                       const GenerationOptions* generation = nullptr,
                       const TemplateText* chat_template = nullptr);

// Tokenizes a prompt with special tokens; an empty prompt becomes BOS.
std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view text);

// Returns the options for scoring texts: BOS replaces the first token of a window if the tokenizer
// puts BOS before a text.
EvalOptions eval_options(const LoadedModel& model, const WindowOptions& windows);

// Models are compared on the same tokens: throws usage naming the reference if its tokenizer turns
// `text` into other tokens than `tokens`, the model's.
void check_same_tokens(const LoadedModel& model, const LoadedModel& reference,
                       std::string_view text, const std::vector<int32_t>& tokens);

// Throws bad_input if the source has no tokenizer or an unsupported one.
Tokenizer read_tokenizer(const WeightSource& source);

// Refuses what load_model would refuse in a model's config, tokenizer and generation config, before
// work that would be lost. The tokenizer may be missing: the speed of models without one can be
// measured.
void check_texts(const WeightSource& source);

// These open a model by a path (open.cpp) and read it, for callers that need no tokenizer.
std::unique_ptr<WeightSource> open_weights(const std::string& path, const Recipe* recipe,
                                           ThreadPool& pool);
Model load_weights(WeightSource& source, const LoadOptions& options);

}  // namespace walsh
