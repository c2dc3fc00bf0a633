#include "walsh/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/convert.h"
#include "api/engine_access.h"
#include "base/stop.h"
#include "eval/evaluator.h"
#include "eval/token_score.h"
#include "generate/generator.h"
#include "io/json.h"
#include "model/session.h"
#include "walsh/error.h"

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

std::shared_ptr<const grammar::TokenGrammar> grammar_of(const LoadedModel& model,
                                                        const GenerationOptions& options) {
  if (!options.grammar.empty() && !options.json_schema.empty())
    throw Error(ErrorCode::usage, "grammar, json_schema", "only one of them can be enforced");
  if (!options.grammar.empty()) return model.gbnf(options.grammar, "grammar");
  if (options.json_schema.empty()) return nullptr;
  return model.schema(parse_ordered_json(options.json_schema, "json_schema"), "json_schema");
}

WindowOptions halves(int64_t ctx, int64_t chunks) {
  WindowOptions windows;
  windows.ctx = ctx;
  windows.chunks = chunks;
  return windows;
}

// The wanted part of a sequence has to begin in it.
void check_first(std::span<const int32_t> tokens, int64_t first, int64_t least) {
  const auto count = static_cast<int64_t>(tokens.size());
  if (tokens.empty()) throw Error(ErrorCode::usage, "tokens", "at least one token is needed");
  if (first >= least && first < count) return;
  throw Error(ErrorCode::usage, "first",
              std::to_string(first) + " of " + std::to_string(count) + " tokens, expected " +
                  std::to_string(least) + " to " + std::to_string(count - 1));
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
    const int64_t known = session->reachable(0, end - prompt.begin());
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
  LoadedModel loaded =
      load_model(request.path, request.recipe, load, request.generation, request.chat_template);
  auto impl = std::unique_ptr<Engine::Impl>(
      new Engine::Impl{std::move(pool), std::move(loaded), nullptr, {}});
  impl->session = std::make_unique<Session>(impl->loaded.model, impl->loaded.use);
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
  request.load.device = parse_device(options.gpu_layers == 0 ? "cpu" : options.device);
  request.load.gpu_layers = layers_of(options.gpu_layers, "gpu_layers");
  request.load.cpu_experts = layers_of(options.cpu_experts, "cpu_experts");
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
  impl_->context.clear();
  impl_->session->reset();
  std::vector<float> result;
  result.reserve(static_cast<size_t>(rows * vocab_size()));
  impl_->session->forward(
      tokens,
      [&](int64_t, std::span<const float> row) {
        result.insert(result.end(), row.begin(), row.end());
      },
      first);
  return result;
}

std::vector<TokenPrediction> Engine::logprobs(std::span<const int32_t> tokens, int64_t first) {
  check_first(tokens, first, 1);
  impl_->context.clear();
  impl_->session->reset();
  std::vector<TokenPrediction> result;
  const auto score = [&](int64_t index, std::span<const float> row) {
    const int32_t target = tokens[static_cast<size_t>(index + 1)];
    const float value = row[static_cast<size_t>(target)];
    const bool best = std::ranges::none_of(row, [&](float other) { return other > value; });
    result.push_back({-token_nll(row, target), best});
  };
  // The last token is only predicted; its id is checked all the same before work is spent.
  const int32_t last = tokens.back();
  if (last < 0 || last >= vocab_size()) {
    throw Error(ErrorCode::usage, "token " + std::to_string(last), "is not in the vocabulary");
  }
  impl_->session->forward(tokens.first(tokens.size() - 1), score, first - 1);
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
  generation.biases = impl_->loaded.generation.biases(options);
  generation.lookup = options.lookup;
  generation.max_tokens = options.max_tokens;
  if (!options.ignore_eos) generation.stop_ids = config.stop_ids();
  generation.grammar = grammar_of(impl_->loaded, options);
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
  const StopScope whole(kNotStopped);
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

}  // namespace walsh
