#include "walsh/batch.h"

#include <exception>
#include <optional>
#include <utility>

#include "api/embedding.h"
#include "api/engine_access.h"
#include "api/text_request.h"
#include "schedule/scheduler.h"

namespace walsh {
namespace {

SchedulerOptions scheduler_options(const BatchOptions& options, int64_t context,
                                   DraftSource* drafts) {
  if (options.waiting < 0 || options.kept < 0 || options.context < 0 || options.cache_positions < 0)
    throw Error(ErrorCode::usage, "batch", "a number is negative");
  SchedulerOptions result;
  result.drafts = drafts;
  result.positions = options.context != 0 ? options.context : context;
  result.running = options.running;
  result.waiting = options.waiting;
  result.kept = options.kept;
  result.cache_positions = options.cache_positions;
  return result;
}

}  // namespace

struct TextBatch::Impl {
  std::shared_ptr<const LoadedModel> model;
  Scheduler scheduler;
};

TextBatch::TextBatch(const Engine& engine, const BatchOptions& options) {
  auto model = EngineAccess::share(engine);
  const Model& weights = model->model;
  const SchedulerOptions wanted = scheduler_options(options, engine.context(), model->drafts());
  impl_ = std::unique_ptr<Impl>(new Impl{std::move(model), {weights, wanted}});
}

TextBatch::~TextBatch() = default;

int64_t TextBatch::context() const {
  return impl_->scheduler.positions();
}

uint64_t TextBatch::add(std::span<const int32_t> prompt, const GenerationOptions& options,
                        OnText on_text, OnEnd on_end) {
  TextRequest request = text_request(*impl_->model, prompt, options);
  auto text =
      std::make_shared<CollectedText>(impl_->model->tokenizer, prompt, options,
                                      request.sampler.seed, std::move(on_text), std::move(on_end));
  return impl_->scheduler.add(std::move(request), std::move(text));
}

uint64_t TextBatch::add(std::string_view prompt, const GenerationOptions& options, OnText on_text,
                        OnEnd on_end) {
  return add(prompt_tokens(*impl_->model, prompt, options), options, std::move(on_text),
             std::move(on_end));
}

void TextBatch::cancel(uint64_t text) {
  impl_->scheduler.cancel(text);
}
bool TextBatch::step() {
  return impl_->scheduler.step_or_fail();
}
void TextBatch::run() {
  impl_->scheduler.run();
}
void TextBatch::stop() {
  impl_->scheduler.stop();
}

std::vector<GenerationResult> TextBatch::generate(std::span<const std::string> prompts,
                                                  const GenerationOptions& options) {
  std::vector<std::vector<int32_t>> tokens;
  for (const std::string& prompt : prompts)
    tokens.push_back(prompt_tokens(*impl_->model, prompt, options));
  return generate_tokens(tokens, options);
}

std::vector<GenerationResult> TextBatch::generate_tokens(
    std::span<const std::vector<int32_t>> prompts, const GenerationOptions& options,
    const std::function<void(size_t)>& on_end) {
  std::vector<GenerationResult> results(prompts.size());
  std::vector<std::optional<Error>> errors(prompts.size());
  std::vector<uint64_t> texts;
  size_t ended = 0;
  try {
    for (size_t i = 0; i < prompts.size(); ++i) {
      // Texts beyond the limit are added when others end.
      while (static_cast<int64_t>(i - ended) >= impl_->scheduler.most())
        step();
      texts.push_back(
          add(prompts[i], options, {}, [&, i](const GenerationResult& result, const Error* error) {
            results[i] = result;
            if (error != nullptr) errors[i] = *error;
            ++ended;
            if (on_end) on_end(ended);
          }));
    }
  } catch (...) {  // the failed texts have no caller left to notify
    for (const uint64_t text : texts)
      cancel(text);
    step();
    throw;
  }
  while (ended < prompts.size())
    step();
  for (const auto& error : errors)
    if (error) throw *error;
  return results;
}

std::vector<std::vector<float>> TextBatch::embed(std::span<const std::string> texts,
                                                 const EmbeddingOptions& options) {
  std::vector<std::vector<int32_t>> tokens;
  for (const std::string& text : texts)
    tokens.push_back(impl_->model->tokenizer.encode(text, true));
  return embed_tokens(tokens, options);
}

std::vector<std::vector<float>> TextBatch::embed_tokens(std::span<const std::vector<int32_t>> texts,
                                                        const EmbeddingOptions& options) {
  return embed_texts(impl_->scheduler, texts, embedding_form(*impl_->model, options));
}

}  // namespace walsh
