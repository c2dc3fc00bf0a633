// Connects a text of the public interface with the scheduler: what is asked of it, and what its
// caller is told.
#pragma once

#include <exception>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/load.h"
#include "schedule/request.h"
#include "text/stopped_text.h"
#include "walsh/engine.h"

namespace walsh {

using TextCallback = std::function<bool(std::string_view)>;

// Returns the tokens of a prompt, in which there may be the images of the options.
std::vector<int32_t> prompt_tokens(const LoadedModel& model, std::string_view prompt,
                                   const GenerationOptions& options);
// Returns how a prompt is to be continued, with a seed that is drawn if none is given. Throws usage
// for options out of range, bad_input for wrong ones in the model's files.
TextRequest text_request(const LoadedModel& model, std::span<const int32_t> prompt,
                         const GenerationOptions& options);

// Collects the text of tokens that are chosen one after the other.
class CollectedText : public RequestSink {
 public:
  // `error` is null, or why the text failed.
  using OnEnd = std::function<void(const GenerationResult& result, const Error* error)>;

  // `prompt` stands before the first token; `seed` is the one in use. `tokenizer` outlives it.
  CollectedText(const Tokenizer& tokenizer, std::span<const int32_t> prompt,
                const GenerationOptions& options, uint64_t seed, TextCallback on_text, OnEnd on_end)
      : text_(tokenizer, prompt, options.stop),
        on_text_(std::move(on_text)),
        on_end_(std::move(on_end)),
        seed_(seed) {}

  bool chosen(const ScoredToken& token) override;
  void ended(const RequestEnd& end) override;
  void failed(const Error& error, const RequestEnd& end) override;
  // Returns what the callback has thrown, if that has ended the text.
  const std::exception_ptr& thrown() const { return thrown_; }

 private:
  void emit(const std::string& piece);
  GenerationResult result(const RequestEnd& end) const;

  StoppedText text_;
  TextCallback on_text_;
  OnEnd on_end_;
  const uint64_t seed_;
  std::string shown_;
  bool wanted_ = true;
  std::exception_ptr thrown_;
};

}  // namespace walsh
