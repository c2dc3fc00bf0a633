#include "api/load.h"

#include "api/draft_model.h"
#include "api/missing_tokenizer.h"
#include "arch/config.h"
#include "base/thread_pool.h"
#include "walsh/error.h"
#include "weights/open.h"

namespace walsh {
namespace {

// A model can be used without its template, so a broken one only gives a note. A template that the
// caller gives must be right.
std::optional<ChatTemplate> read_chat_template(const WeightSource& source,
                                               const TemplateText* given,
                                               std::vector<std::string>& notes) {
  if (given != nullptr)
    return ChatTemplate::from_files(source.tokenizer_config_json(), given->text, given->where);
  try {
    return ChatTemplate::from_files(source.tokenizer_config_json(), {});
  } catch (const Error& e) {
    notes.push_back(std::string("the chat template cannot be used, so there are no chats: ") +
                    e.what());
    return std::nullopt;
  }
}

// The encoder is opened from the path again, when an image comes.
std::shared_ptr<const ImageReader> image_reader(const WeightSource& source, const Model& model) {
  std::string missing = missing_tower(source);
  if (missing.empty() && (model.device.cuda || !model.parts.empty()))
    missing = "images need a model that is on the CPU as a whole (--device cpu)";
  if (missing.empty() && source.folded())
    missing = "images need a model whose residual stream is not rotated";
  if (!missing.empty()) return std::make_shared<ImageReader>(std::move(missing));
  const int threads = model.pool().size();
  return std::make_shared<ImageReader>([path = source.path(), threads] {
    ThreadPool pool(1);
    const auto again = open_weights(path, nullptr, pool);
    return ImageEncoder::open(*again, read_tokenizer(*again), threads);
  });
}

}  // namespace

Tokenizer read_tokenizer(const WeightSource& source) {
  if (const std::string missing = missing_tokenizer(source); !missing.empty())
    throw Error(ErrorCode::bad_input, source.path(), missing);
  return Tokenizer::from_json(source.tokenizer_json(), source.tokenizer_config_json(),
                              source.path() + ": tokenizer");
}

void check_texts(const WeightSource& source) {
  const ModelConfig config = read_config(source);
  if (!source.tokenizer_json().empty()) read_tokenizer(source);
  const GenerationConfig generation(config, source.generation_config_json(), source.config_json(),
                                    source.path());
  generation.stop_ids();
  generation.sampler({});
}

LoadedModel load_model(WeightSource& source, const std::string& path, const LoadOptions& options,
                       const GenerationOptions* generation_options,
                       const TemplateText* chat_template) {
  source.use_on(options.device);
  const ModelConfig config = read_config(source);
  // Small files come first, so that errors in them are reported before the weights are read.
  Tokenizer tokenizer = read_tokenizer(source);
  GenerationConfig generation(config, source.generation_config_json(), source.config_json(), path);
  if (generation_options != nullptr) {
    generation.sampler(*generation_options);
    if (!generation_options->ignore_eos) generation.stop_ids();
  }
  const EmbeddingConfig embedding =
      read_embedding_config(embedding_json(source), path + ": modules.json");
  std::vector<std::string> chat_notes;
  std::optional<ChatTemplate> chat = read_chat_template(source, chat_template, chat_notes);
  LoadOptions load = options;
  if (load.use.max_positions == kFittingPositions)
    load.use.max_positions = Model::fitting_positions(source, config, load);
  Model model = Model::load(source, config, load);
  const std::shared_ptr<const ImageReader> images = image_reader(source, model);
  std::vector<std::string> notes = source.notes();
  if (!model.device_note.empty()) notes.push_back(model.device_note);
  notes.insert(notes.end(), chat_notes.begin(), chat_notes.end());
  return {path,
          std::move(model),
          std::move(tokenizer),
          std::move(generation),
          std::move(chat),
          std::move(notes),
          load.use,
          std::make_shared<grammar::GrammarCache>(),
          nullptr,
          embedding,
          source.folded(),
          images,
          checksum(std::as_bytes(std::span(source.config_json())))};
}

DraftSource* LoadedModel::drafts() const {
  return draft ? draft->drafts.get() : nullptr;
}

std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> tokens = tokenizer.encode(text, true);
  if (tokens.empty() && tokenizer.bos()) tokens.push_back(*tokenizer.bos());
  return tokens;
}

EvalOptions eval_options(const LoadedModel& model, const WindowOptions& windows) {
  EvalOptions options;
  options.windows = windows;
  if (windows.rule != WindowRule::strided) options.bos = model.tokenizer.added_bos().value_or(-1);
  return options;
}

void check_same_tokens(const LoadedModel& model, const LoadedModel& reference,
                       std::string_view text, const std::vector<int32_t>& tokens) {
  if (reference.tokenizer.encode(text, false) != tokens ||
      reference.tokenizer.added_bos() != model.tokenizer.added_bos()) {
    throw Error(ErrorCode::usage, reference.path, "its tokenizer differs from the model's");
  }
}

Model load_weights(WeightSource& source, const LoadOptions& options) {
  source.use_on(options.device);
  return Model::load(source, read_config(source), options);
}

}  // namespace walsh
