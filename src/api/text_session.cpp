#include "api/engine_access.h"
#include "api/text_context.h"
#include "walsh/engine.h"
#include "walsh/error.h"

namespace walsh {

struct TextSession::Impl {
  std::shared_ptr<const LoadedModel> model;
  std::unique_ptr<TextContext> context;
};

TextSession::TextSession(const Engine& engine, int64_t context) {
  if (context < 0)
    throw Error(ErrorCode::usage, "context", std::to_string(context) + " positions asked for");
  impl_ = std::unique_ptr<Impl>(
      new Impl{EngineAccess::share(engine), EngineAccess::context(engine, context)});
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
  return generate(encode_prompt(impl_->model->tokenizer, prompt), options, on_text);
}

GenerationResult TextSession::generate(std::span<const int32_t> prompt,
                                       const GenerationOptions& options,
                                       const std::function<bool(std::string_view)>& on_text) {
  GenerationOptions kept = options;
  kept.keep_context = true;
  return impl_->context->generate(prompt, kept, on_text);
}

void TextSession::reset() {
  impl_->context->empty();
}

}  // namespace walsh
