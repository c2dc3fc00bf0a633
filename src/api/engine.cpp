#include "walsh/engine.h"

#include <algorithm>

#include "api/convert.h"
#include "api/draft_model.h"
#include "api/embedding.h"
#include "api/engine_access.h"
#include "api/text_request.h"
#include "eval/evaluator.h"
#include "eval/token_score.h"
#include "io/json.h"
#include "schedule/scheduler.h"
#include "walsh/error.h"
#include "weights/hub_cache.h"

namespace walsh {
namespace {

Recipe loading_recipe(const CompressOptions& options) {
  if (!options.calibrate.empty()) {
    throw Error(ErrorCode::usage, "calibrate",
                "a model cannot be calibrated while it is loaded: use quantize()");
  }
  if (options.bits_per_weight != 0 || options.file_bytes != 0) {
    throw Error(ErrorCode::usage, "bits_per_weight, file_bytes",
                "types cannot be chosen while a model is loaded: use quantize()");
  }
  return to_recipe(options);
}

int64_t layers_of(std::optional<int64_t> wanted, const char* option) {
  if (!wanted) return kPlanned;
  if (*wanted >= 0) return *wanted;
  throw Error(ErrorCode::usage, option,
              "the number of layers is " + std::to_string(*wanted) + ", expected 0 or more");
}

WindowOptions halves(int64_t ctx, int64_t chunks) {
  WindowOptions windows;
  windows.ctx = ctx;
  windows.chunks = chunks;
  return windows;
}

// Refuses a `first` outside the sequence.
void check_first(std::span<const int32_t> tokens, int64_t first, int64_t least) {
  const auto count = static_cast<int64_t>(tokens.size());
  if (tokens.empty()) throw Error(ErrorCode::usage, "tokens", "at least one token is needed");
  if (first >= least && first < count) return;
  throw Error(ErrorCode::usage, "first",
              std::to_string(first) + " of " + std::to_string(count) + " tokens, expected " +
                  std::to_string(least) + " to " + std::to_string(count - 1));
}

// Returns what a model was loaded for, but for a single text of `positions` positions; 0 stands for
// as many as it was loaded for.
SessionOptions one_sequence(const LoadedModel& model, int64_t positions = 0) {
  SessionOptions use = model.use;
  use.sequences = use.revoking = 1;
  use.cache_positions = 0;
  if (positions != 0) use.max_positions = positions;
  return use;
}

// Generates texts one after the other, and keeps their tokens and cache: a scheduler with one
// place.
class TextContext {
 public:
  // `model` must outlive this. Throws as Session does.
  TextContext(const LoadedModel& model, const SessionOptions& use)
      : model_(model), scheduler_(model.model, use, model.drafts()) {}

  int64_t capacity() const { return scheduler_.positions(); }
  // Returns the tokens in the context: of prompts and texts so far.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  void forget();

  // Does what Engine::generate does; with options.keep_context it evaluates only what differs from
  // tokens().
  GenerationResult generate(std::span<const int32_t> prompt, const GenerationOptions& options,
                            const TextCallback& on_text);
  // Leaves what is kept of the last text.
  std::vector<std::vector<float>> embed(std::span<const std::vector<int32_t>> texts,
                                        const EmbeddingForm& form);
  // Calls Session::forward() in an empty context, and leaves it empty.
  void forward(std::span<const int32_t> tokens, LogitSink sink, int64_t first_logit);

 private:
  const LoadedModel& model_;
  Scheduler scheduler_;
  std::vector<int32_t> tokens_;
};

void TextContext::forget() {
  tokens_.clear();
  scheduler_.forget();
}

void TextContext::forward(std::span<const int32_t> tokens, LogitSink sink, int64_t first_logit) {
  forget();
  scheduler_.forward(tokens, sink, first_logit);
}

std::vector<std::vector<float>> TextContext::embed(std::span<const std::vector<int32_t>> texts,
                                                   const EmbeddingForm& form) {
  tokens_.clear();
  auto embeddings = embed_texts(scheduler_, texts, form);
  const std::span<const int32_t> kept = scheduler_.kept_tokens();
  tokens_.assign(kept.begin(), kept.end());
  return embeddings;
}

// A text that a request to stop has ended in the middle counts as one that its callback has ended.
GenerationResult TextContext::generate(std::span<const int32_t> prompt,
                                       const GenerationOptions& options,
                                       const TextCallback& on_text) {
  TextRequest request = text_request(model_, prompt, options);
  request.shares_prefix = options.keep_context;
  std::optional<GenerationResult> result;
  std::optional<Error> error;
  const auto text = std::make_shared<CollectedText>(
      model_.tokenizer, prompt, options, request.sampler.seed, on_text,
      [&](const GenerationResult& done, const Error* failure) {
        result = done;
        if (failure != nullptr) error = *failure;
      });
  scheduler_.add(std::move(request), text);
  while (!result)
    scheduler_.step_or_fail();
  const std::span<const int32_t> kept = scheduler_.kept_tokens();
  tokens_.assign(kept.begin(), kept.end());
  if (text->thrown()) std::rethrow_exception(text->thrown());
  if (error && (error->code() != ErrorCode::interrupted || result->tokens == 0)) throw *error;
  return *result;
}

}  // namespace

struct Engine::Impl {
  std::unique_ptr<ThreadPool> pool;
  LoadedModel loaded;
  // This is the engine's own; an engine for batches creates it on first use.
  std::unique_ptr<TextContext> text;

  TextContext& own() {
    if (text == nullptr) text = std::make_unique<TextContext>(loaded, one_sequence(loaded));
    return *text;
  }
};

Engine::Engine(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Engine EngineAccess::open(std::unique_ptr<ThreadPool> pool, const OpenRequest& request) {
  LoadOptions load = request.load;
  load.pool = pool.get();
  if (!request.draft.empty()) {
    load.use.revocable = kRevocableTokens;
    load.use.revoking = request.draft_texts;
  }
  LoadedModel loaded = load_with_drafts(request.path, request.recipe, load, request.generation,
                                        request.chat_template, request.draft, request.draft_texts);
  auto impl =
      std::shared_ptr<Engine::Impl>(new Engine::Impl{std::move(pool), std::move(loaded), nullptr});
  if (!request.for_batches) impl->own();
  return Engine(std::move(impl));
}

const LoadedModel& EngineAccess::model(const Engine& engine) {
  return engine.impl_->loaded;
}

std::shared_ptr<const LoadedModel> EngineAccess::share(const Engine& engine) {
  return {engine.impl_, &engine.impl_->loaded};
}

Engine Engine::open(const std::string& path, const EngineOptions& options) {
  std::optional<Recipe> recipe;
  if (options.compress) recipe = loading_recipe(*options.compress);
  OpenRequest request;
  request.path = found_model(path);
  request.recipe = recipe ? &*recipe : nullptr;
  request.load.activations = parse_activation_mode(options.activations);
  request.load.device = parse_device(options.gpu_layers == 0 ? "cpu" : options.device);
  request.load.gpu_layers = layers_of(options.gpu_layers, "gpu_layers");
  request.load.cpu_experts = layers_of(options.cpu_experts, "cpu_experts");
  request.load.may_use_cpu = options.device == "auto";
  request.load.device_bytes = options.device_bytes;
  if (options.context < 0)
    throw Error(ErrorCode::usage, "context",
                std::to_string(options.context) + " positions are asked for, expected 0 or more");
  request.load.use.max_positions = options.context;
  request.load.cache = {&get_cache_type(options.cache_keys), &get_cache_type(options.cache_values),
                        options.cache_window};
  request.load.progress = options.progress;
  if (options.generation) request.generation = &*options.generation;
  if (options.generation && options.generation->lookup)
    request.load.use.revocable = kRevocableTokens;
  if (!options.draft.empty())
    request.draft = ahead_depth(options.draft) ? options.draft : found_model(options.draft);
  if (options.batch) {
    request.for_batches = true;
    SessionOptions& use = request.load.use;
    if (options.batch->context != 0) use.max_positions = options.batch->context;
    use.sequences = options.batch->running + options.batch->kept;
    use.cache_positions = options.batch->cache_positions;
    request.draft_texts = options.batch->running;
  }
  return EngineAccess::open(std::make_unique<ThreadPool>(options.threads), request);
}

int64_t Engine::vocab_size() const {
  return impl_->loaded.model.config.vocab;
}
int64_t Engine::hidden_size() const {
  return impl_->loaded.model.config.hidden;
}
int64_t Engine::context() const {
  return kv_shape(impl_->loaded.model, one_sequence(impl_->loaded)).capacity;
}
double Engine::bits_per_weight() const {
  return impl_->loaded.model.bits_per_weight();
}
std::string Engine::type() const {
  return std::string(impl_->loaded.model.type_name());
}
std::string Engine::device() const {
  return impl_->loaded.model.device.name();
}
const std::vector<std::string>& Engine::notes() const {
  return impl_->loaded.notes;
}

std::vector<int32_t> Engine::encode(std::string_view text, bool add_special) const {
  return impl_->loaded.tokenizer.encode(text, add_special);
}

std::string Engine::decode(std::span<const int32_t> tokens, bool skip_special) const {
  return impl_->loaded.tokenizer.decode(tokens, skip_special);
}

bool Engine::has_chat_template() const {
  return impl_->loaded.chat.has_value();
}

const std::string& Engine::missing_images() const {
  return impl_->loaded.images->missing();
}

std::string Engine::chat_prompt(std::string_view messages, bool add_generation_prompt) const {
  if (!impl_->loaded.chat) {
    throw Error(ErrorCode::usage, impl_->loaded.path, "the model has no chat template");
  }
  ChatOptions options;
  options.add_generation_prompt = add_generation_prompt;
  return impl_->loaded.chat->apply(parse_ordered_json(messages, "messages"), options);
}

std::vector<float> Engine::logits(std::span<const int32_t> tokens) {
  return all_logits(tokens, static_cast<int64_t>(tokens.size()) - 1);
}

std::vector<float> Engine::all_logits(std::span<const int32_t> tokens, int64_t first) {
  check_first(tokens, first, 0);
  const auto rows = static_cast<int64_t>(tokens.size()) - first;
  std::vector<float> result;
  result.reserve(static_cast<size_t>(rows * vocab_size()));
  impl_->own().forward(
      tokens,
      [&](int64_t, std::span<const float> row) {
        result.insert(result.end(), row.begin(), row.end());
      },
      first);
  return result;
}

std::vector<TokenPrediction> Engine::logprobs(std::span<const int32_t> tokens, int64_t first) {
  check_first(tokens, first, 1);
  std::vector<TokenPrediction> result;
  const auto score = [&](int64_t index, std::span<const float> row) {
    const int32_t target = tokens[static_cast<size_t>(index + 1)];
    const float value = row[static_cast<size_t>(target)];
    const bool best = std::ranges::none_of(row, [&](float other) { return other > value; });
    result.push_back({-token_nll(row, target), best});
  };
  // The last token is only predicted, but its id is checked before work is spent.
  const int32_t last = tokens.back();
  if (last < 0 || last >= vocab_size()) {
    throw Error(ErrorCode::usage, "token " + std::to_string(last), "is not in the vocabulary");
  }
  impl_->own().forward(tokens.first(tokens.size() - 1), score, first - 1);
  return result;
}

std::vector<int32_t> Engine::encode_prompt(std::string_view text) const {
  return walsh::encode_prompt(impl_->loaded.tokenizer, text);
}

GenerationResult Engine::generate(std::string_view prompt, const GenerationOptions& options,
                                  const std::function<bool(std::string_view)>& on_text) {
  return generate(prompt_tokens(impl_->loaded, prompt, options), options, on_text);
}

GenerationResult Engine::generate(std::span<const int32_t> prompt, const GenerationOptions& options,
                                  const std::function<bool(std::string_view)>& on_text) {
  return impl_->own().generate(prompt, options, on_text);
}

std::vector<std::vector<float>> Engine::embed(std::span<const std::string> texts,
                                              const EmbeddingOptions& options) {
  std::vector<std::vector<int32_t>> tokens;
  for (const std::string& text : texts)
    tokens.push_back(encode(text));
  return embed_tokens(tokens, options);
}

std::vector<std::vector<float>> Engine::embed_tokens(std::span<const std::vector<int32_t>> texts,
                                                     const EmbeddingOptions& options) {
  return impl_->own().embed(texts, embedding_form(impl_->loaded, options));
}

PerplexityResult Engine::perplexity(std::string_view text, int64_t ctx, int64_t chunks) {
  const Evaluation result = evaluate(impl_->loaded.model, nullptr, encode(text, false),
                                     eval_options(impl_->loaded, halves(ctx, chunks)));
  const Estimate perplexity = result.perplexity.perplexity();
  return {perplexity.value, perplexity.error, result.perplexity.count()};
}

DivergenceResult Engine::kl_divergence(const Engine& reference, std::string_view text, int64_t ctx,
                                       int64_t chunks) {
  const std::vector<int32_t> tokens = encode(text, false);
  const LoadedModel& other = reference.impl_->loaded;
  check_same_tokens(impl_->loaded, other, text, tokens);
  const Evaluation result = evaluate(impl_->loaded.model, &other.model, tokens,
                                     eval_options(impl_->loaded, halves(ctx, chunks)));
  const DivergenceMeter& meter = *result.divergence;
  const Estimate kld = meter.kld();
  return {kld.value,
          kld.error,
          meter.same_top().value,
          meter.perplexity().value,
          meter.reference_perplexity().value,
          meter.count()};
}

struct TextSession::Impl {
  std::shared_ptr<const LoadedModel> model;
  std::unique_ptr<TextContext> context;
};

TextSession::TextSession(const Engine& engine, int64_t context) {
  if (context < 0)
    throw Error(ErrorCode::usage, "context", std::to_string(context) + " positions asked for");
  auto model = EngineAccess::share(engine);
  auto own = std::make_unique<TextContext>(*model, one_sequence(*model, context));
  impl_ = std::unique_ptr<Impl>(new Impl{std::move(model), std::move(own)});
}

TextSession::TextSession(TextSession&&) noexcept = default;
TextSession& TextSession::operator=(TextSession&&) noexcept = default;
TextSession::~TextSession() = default;

int64_t TextSession::context() const {
  return impl_->context->capacity();
}

const std::vector<int32_t>& TextSession::tokens() const {
  return impl_->context->tokens();
}

GenerationResult TextSession::generate(std::string_view prompt, const GenerationOptions& options,
                                       const std::function<bool(std::string_view)>& on_text) {
  return generate(prompt_tokens(*impl_->model, prompt, options), options, on_text);
}

GenerationResult TextSession::generate(std::span<const int32_t> prompt,
                                       const GenerationOptions& options,
                                       const std::function<bool(std::string_view)>& on_text) {
  GenerationOptions kept = options;
  kept.keep_context = true;
  return impl_->context->generate(prompt, kept, on_text);
}

void TextSession::reset() {
  impl_->context->forget();
}

}  // namespace walsh
