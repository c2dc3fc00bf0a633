#include "walsh/engine.h"

#include "api/convert.h"
#include "api/load.h"
#include "eval/evaluator.h"
#include "generate/generator.h"
#include "model/session.h"
#include "walsh/error.h"

namespace walsh {

struct Engine::Impl {
  std::unique_ptr<ThreadPool> pool;
  LoadedModel loaded;
  std::unique_ptr<Session> session;
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Engine Engine::open(const std::string& path, const EngineOptions& options) {
  auto pool = std::make_unique<ThreadPool>(options.threads);
  std::optional<Recipe> recipe;
  if (options.compress) {
    const CompressOptions& compress = *options.compress;
    if (!compress.calibrate.empty()) {
      throw Error(ErrorCode::usage, "calibrate",
                  "a model is not calibrated while it is loaded: use quantize()");
    }
    if (compress.bits_per_weight != 0 || compress.file_bytes != 0) {
      throw Error(ErrorCode::usage, "bits_per_weight, file_bytes",
                  "types are not chosen while a model is loaded: use quantize()");
    }
    recipe = to_recipe(compress);
  }
  LoadOptions load;
  load.pool = pool.get();
  load.activations = parse_activation_mode(options.activations);
  load.device = parse_device(options.device);
  load.may_use_cpu = options.device == "auto";
  load.use.max_positions = options.context;
  load.cache = {&get_cache_type(options.cache_keys), &get_cache_type(options.cache_values),
                options.cache_window};
  LoadedModel loaded = load_model(path, recipe ? &*recipe : nullptr, load);
  auto impl = std::unique_ptr<Impl>(new Impl{std::move(pool), std::move(loaded), nullptr});
  SessionOptions session;
  session.max_positions = options.context;
  impl->session = std::make_unique<Session>(impl->loaded.model, session);
  return Engine(std::move(impl));
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
  impl_->session->reset();
  std::vector<float> result;
  impl_->session->forward(
      tokens, [&](int64_t, std::span<const float> row) { result.assign(row.begin(), row.end()); },
      static_cast<int64_t>(tokens.size()) - 1);
  return result;
}

std::string Engine::generate(std::string_view prompt, const GenerationOptions& options,
                             const std::function<bool(std::string_view)>& on_text) {
  GenerateOptions generation;
  generation.sampler.temperature = options.temperature;
  generation.sampler.top_k = options.top_k;
  generation.sampler.top_p = options.top_p;
  generation.sampler.min_p = options.min_p;
  generation.sampler.repeat_penalty = options.repeat_penalty;
  generation.sampler.repeat_last_n = options.repeat_last_n;
  generation.sampler.seed = options.seed;
  generation.max_tokens = options.max_tokens;
  generation.stop_ids = impl_->loaded.generation.stop_ids();
  // The decoder has to know what stands before the first new token.
  const std::vector<int32_t> tokens = encode(prompt);
  StreamDecoder decoder(impl_->loaded.tokenizer, true);
  for (const int32_t token : tokens)
    decoder.push(token);
  std::string text;
  bool wanted = true;
  const auto emit = [&](const std::string& piece) {
    if (!wanted || piece.empty()) return wanted;
    text += piece;
    return wanted = !on_text || on_text(piece);
  };
  impl_->session->reset();
  walsh::generate(*impl_->session, tokens, generation,
                  [&](int32_t token) { return emit(decoder.push(token)); });
  emit(decoder.finish());
  return text;
}

PerplexityResult Engine::perplexity(std::string_view text, int64_t ctx, int64_t chunks) {
  EvalOptions options;
  options.windows.ctx = ctx;
  options.windows.chunks = chunks;
  options.bos = impl_->loaded.tokenizer.added_bos().value_or(-1);
  const Evaluation result = evaluate(impl_->loaded.model, nullptr, encode(text, false), options);
  const Estimate perplexity = result.perplexity.perplexity();
  return {perplexity.value, perplexity.error, result.perplexity.count()};
}

}  // namespace walsh
