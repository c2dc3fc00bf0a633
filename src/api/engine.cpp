#include "walsh/engine.h"

#include <algorithm>

#include "api/convert.h"
#include "api/engine_access.h"
#include "eval/evaluator.h"
#include "generate/generator.h"
#include "model/session.h"
#include "walsh/error.h"

namespace walsh {
namespace {

Recipe loading_recipe(const CompressOptions& options) {
  if (!options.calibrate.empty()) {
    throw Error(ErrorCode::usage, "calibrate",
                "a model is not calibrated while it is loaded: use quantize()");
  }
  if (options.bits_per_weight != 0 || options.file_bytes != 0) {
    throw Error(ErrorCode::usage, "bits_per_weight, file_bytes",
                "types are not chosen while a model is loaded: use quantize()");
  }
  return to_recipe(options);
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

struct Engine::Impl {
  std::unique_ptr<ThreadPool> pool;
  LoadedModel loaded;
  std::unique_ptr<Session> session;
  std::vector<int32_t> context;  // tokens that are known to be in the session

  // Makes the session hold nothing but a beginning of `prompt`; returns its tokens, not all.
  int64_t keep(std::span<const int32_t> prompt) {
    const auto most = prompt.empty() ? prompt.end() : prompt.end() - 1;
    const auto [end, other] = std::mismatch(prompt.begin(), most, context.begin(), context.end());
    const int64_t known = end - prompt.begin();
    context.clear();
    if (known == 0) {
      session->reset();
    } else {
      session->truncate(known);
    }
    return known;
  }
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Engine EngineAccess::open(std::unique_ptr<ThreadPool> pool, const OpenRequest& request) {
  LoadOptions load = request.load;
  load.pool = pool.get();
  LoadedModel loaded = load_model(request.path, request.recipe, load, request.generation);
  auto impl = std::unique_ptr<Engine::Impl>(
      new Engine::Impl{std::move(pool), std::move(loaded), nullptr, {}});
  impl->session = std::make_unique<Session>(impl->loaded.model, load.use);
  return Engine(std::move(impl));
}

const LoadedModel& EngineAccess::model(const Engine& engine) {
  return engine.impl_->loaded;
}

Engine Engine::open(const std::string& path, const EngineOptions& options) {
  std::optional<Recipe> recipe;
  if (options.compress) recipe = loading_recipe(*options.compress);
  OpenRequest request;
  request.path = path;
  request.recipe = recipe ? &*recipe : nullptr;
  request.load.activations = parse_activation_mode(options.activations);
  request.load.device = parse_device(options.device);
  request.load.may_use_cpu = options.device == "auto";
  request.load.device_bytes = options.device_bytes;
  request.load.use.max_positions = options.context;
  request.load.cache = {&get_cache_type(options.cache_keys), &get_cache_type(options.cache_values),
                        options.cache_window};
  request.load.progress = options.progress;
  if (options.generation) request.generation = &*options.generation;
  return EngineAccess::open(std::make_unique<ThreadPool>(options.threads), request);
}

int64_t Engine::vocab_size() const {
  return impl_->loaded.model.config.vocab;
}
int64_t Engine::context() const {
  return impl_->session->capacity();
}
double Engine::bits_per_weight() const {
  return impl_->loaded.model.bits_per_weight();
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

std::vector<float> Engine::logits(std::span<const int32_t> tokens) {
  if (tokens.empty()) throw Error(ErrorCode::usage, "tokens", "at least one token is needed");
  impl_->context.clear();
  impl_->session->reset();
  std::vector<float> result;
  impl_->session->forward(
      tokens, [&](int64_t, std::span<const float> row) { result.assign(row.begin(), row.end()); },
      static_cast<int64_t>(tokens.size()) - 1);
  return result;
}

std::vector<int32_t> Engine::encode_prompt(std::string_view text) const {
  return walsh::encode_prompt(impl_->loaded.tokenizer, text);
}

GenerationResult Engine::generate(std::string_view prompt, const GenerationOptions& options,
                                  const std::function<bool(std::string_view)>& on_text) {
  return generate(encode_prompt(prompt), options, on_text);
}

GenerationResult Engine::generate(std::span<const int32_t> prompt, const GenerationOptions& options,
                                  const std::function<bool(std::string_view)>& on_text) {
  const GenerationConfig& config = impl_->loaded.generation;
  GenerateOptions generation;
  generation.sampler = config.sampler(options);
  generation.breakers =
      make_breakers(generation.sampler, impl_->loaded.tokenizer,
                    options.dry_sequence_breakers ? &*options.dry_sequence_breakers : nullptr);
  generation.lookup = options.lookup;
  generation.max_tokens = options.max_tokens;
  if (!options.ignore_eos) generation.stop_ids = config.stop_ids();
  // The decoder has to know what stands before the first new token.
  StreamDecoder decoder(impl_->loaded.tokenizer, true);
  for (const int32_t token : prompt)
    decoder.push(token);
  GenerationResult result;
  bool wanted = true;
  const auto emit = [&](const std::string& piece) {
    if (!wanted || piece.empty()) return wanted;
    result.text += piece;
    return wanted = !on_text || on_text(piece);
  };
  if (!options.keep_context) impl_->context.clear();
  generation.known = impl_->keep(prompt);
  const GenerateResult done =
      walsh::generate(*impl_->session, prompt, generation,
                      [&](int32_t token) { return emit(decoder.push(token)); });
  if (options.keep_context && done.intact) {
    impl_->context.assign(prompt.begin(), prompt.end());
    impl_->context.insert(impl_->context.end(), done.tokens.begin(), done.tokens.end());
    impl_->context.resize(static_cast<size_t>(impl_->session->position()));
  }
  emit(decoder.finish());
  result.reason = public_reason(done.reason);
  result.prompt_tokens = done.prompt_tokens;
  result.cached_tokens = generation.known;
  result.tokens = static_cast<int64_t>(done.tokens.size());
  result.prompt_seconds = done.prompt_seconds;
  result.decode_seconds = done.decode_seconds;
  result.decoded_tokens = done.decoded_tokens;
  result.drafted = done.drafted;
  result.drafted_right = done.drafted_right;
  result.seed = generation.sampler.seed;
  return result;
}

PerplexityResult Engine::perplexity(std::string_view text, int64_t ctx, int64_t chunks) {
  WindowOptions windows;
  windows.ctx = ctx;
  windows.chunks = chunks;
  const Evaluation result = evaluate(impl_->loaded.model, nullptr, encode(text, false),
                                     eval_options(impl_->loaded, windows));
  const Estimate perplexity = result.perplexity.perplexity();
  return {perplexity.value, perplexity.error, result.perplexity.count()};
}

}  // namespace walsh
