#include "walsh/batch.h"

#include <exception>
#include <optional>
#include <utility>

#include "api/engine_access.h"
#include "api/text_options.h"
#include "schedule/failure.h"
#include "schedule/scheduler.h"
#include "text/stopped_text.h"

namespace walsh {
namespace {

SchedulerOptions scheduler_options(const BatchOptions& options, int64_t context) {
  if (options.waiting < 0 || options.kept < 0 || options.context < 0 || options.cache_positions < 0)
    throw Error(ErrorCode::usage, "batch", "a number is negative");
  SchedulerOptions result;
  result.positions = options.context != 0 ? options.context : context;
  result.running = options.running;
  result.waiting = options.waiting;
  result.kept = options.kept;
  result.cache_positions = options.cache_positions;
  return result;
}

class BatchText : public RequestSink {
 public:
  BatchText(const LoadedModel& model, std::span<const int32_t> prompt,
            const GenerationOptions& options, uint64_t seed, TextBatch::OnText on_text,
            TextBatch::OnEnd on_end)
      : text_(model.tokenizer, prompt, options.stop),
        on_text_(std::move(on_text)),
        on_end_(std::move(on_end)) {
    result_.seed = seed;
  }

  bool chosen(const ScoredToken& token) override {
    error_ = failure_of([&] { emit(text_.push(token.token)); });
    return !error_ && wanted_ && !text_.stopped();
  }

  void ended(const RequestEnd& end) override {
    if (!error_) error_ = failure_of([&] { emit(text_.finish()); });
    result_.reason = public_reason(end.reason);
    if (text_.stopped()) {
      result_.stop = *text_.stop();
      if (wanted_) result_.reason = FinishReason::stop_string;
    }
    result_.prompt_tokens = end.prompt_tokens;
    result_.cached_tokens = end.cached_tokens;
    result_.tokens = end.tokens;
    result_.decoded_tokens = end.tokens > 0 ? end.tokens - 1 : 0;
    result_.prompt_seconds = end.prompt_seconds;
    result_.decode_seconds = end.decode_seconds;
    tell();
  }

  void failed(const Error& error) override {
    error_ = error;
    tell();
  }

 private:
  void emit(const std::string& piece) {
    if (!wanted_ || piece.empty()) return;
    result_.text += piece;
    wanted_ = !on_text_ || on_text_(piece);
  }
  void tell() {
    if (on_end_) on_end_(result_, error_ ? &*error_ : nullptr);
  }

  StoppedText text_;
  TextBatch::OnText on_text_;
  TextBatch::OnEnd on_end_;
  GenerationResult result_;
  std::optional<Error> error_;
  bool wanted_ = true;
};

}  // namespace

struct TextBatch::Impl {
  std::shared_ptr<const LoadedModel> model;
  Scheduler scheduler;
};

TextBatch::TextBatch(const Engine& engine, const BatchOptions& options) {
  auto model = EngineAccess::share(engine);
  const Model& weights = model->model;
  impl_ = std::unique_ptr<Impl>(
      new Impl{std::move(model), {weights, scheduler_options(options, engine.context())}});
}

TextBatch::~TextBatch() = default;

int64_t TextBatch::context() const {
  return impl_->scheduler.positions();
}

uint64_t TextBatch::add(std::span<const int32_t> prompt, const GenerationOptions& options,
                        OnText on_text, OnEnd on_end) {
  TextOptions text = text_options(*impl_->model, options);
  const uint64_t seed = text.sampler.seed;
  TextRequest request;
  static_cast<ChoiceOptions&>(request) = std::move(text);
  request.prompt.assign(prompt.begin(), prompt.end());
  request.max_tokens = options.max_tokens;
  auto sink = std::make_shared<BatchText>(*impl_->model, prompt, options, seed, std::move(on_text),
                                          std::move(on_end));
  return impl_->scheduler.add(std::move(request), std::move(sink));
}

uint64_t TextBatch::add(std::string_view prompt, const GenerationOptions& options, OnText on_text,
                        OnEnd on_end) {
  return add(encode_prompt(impl_->model->tokenizer, prompt), options, std::move(on_text),
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
  std::vector<GenerationResult> results(prompts.size());
  std::vector<std::optional<Error>> errors(prompts.size());
  std::vector<uint64_t> texts;
  size_t ended = 0;
  try {
    for (size_t i = 0; i < prompts.size(); ++i) {
      // More than may wait are added as others end.
      while (static_cast<int64_t>(i - ended) >= impl_->scheduler.most())
        step();
      texts.push_back(
          add(prompts[i], options, {}, [&, i](const GenerationResult& result, const Error* error) {
            results[i] = result;
            if (error != nullptr) errors[i] = *error;
            ++ended;
          }));
    }
  } catch (...) {  // nobody is there any more whom the others could tell
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

}  // namespace walsh
