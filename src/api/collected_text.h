// The text of tokens that are chosen one after the other, and what its caller is told at its end.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/request.h"
#include "text/stopped_text.h"
#include "walsh/engine.h"

namespace walsh {

using TextCallback = std::function<bool(std::string_view)>;

class CollectedText {
 public:
  // `prompt` stands before the first token; `stops` end the text. `tokenizer` outlives it.
  CollectedText(const Tokenizer& tokenizer, std::span<const int32_t> prompt,
                const std::vector<std::string>& stops, TextCallback on_text)
      : text_(tokenizer, prompt, stops), on_text_(std::move(on_text)) {}

  // The next token; false: no more are wanted. Throws what the callback throws.
  bool push(int32_t token) {
    emit(text_.push(token));
    return wanted_ && !text_.stopped();
  }
  // Gives out what was held back.
  void finish() { emit(text_.finish()); }
  // The text so far with the figures of its end.
  GenerationResult result(const RequestEnd& end, uint64_t seed) const;

 private:
  void emit(const std::string& piece) {
    if (!wanted_ || piece.empty()) return;
    shown_ += piece;
    wanted_ = !on_text_ || on_text_(piece);
  }

  StoppedText text_;
  TextCallback on_text_;
  std::string shown_;
  bool wanted_ = true;
};

}  // namespace walsh
