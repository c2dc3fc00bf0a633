// The text of chosen tokens, up to the first of some strings that end it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace walsh {

class StoppedText {
 public:
  // `before` stands before the first token. `tokenizer` outlives it. Empty stop strings are
  // ignored.
  StoppedText(const Tokenizer& tokenizer, std::span<const int32_t> before,
              std::vector<std::string> stops);
  // Special tokens that are part of the text; others are left out.
  void show(const std::vector<std::string>& special_tokens);

  // What can be shown now: complete UTF-8, without anything that may become a stop string.
  std::string push(int32_t token);
  // The rest, when no more tokens come.
  std::string finish();
  // Whether a stop string was found; nothing comes after it.
  bool stopped() const { return stop_.has_value(); }
  // Of the text of all tokens so far, with what is held back or behind a stop string.
  size_t characters() const { return characters_; }
  const std::optional<std::string>& stop() const { return stop_; }  // the one that was found

 private:
  std::string release(std::string more, bool all);

  const Tokenizer& tokenizer_;
  StreamDecoder decoder_;  // with special tokens
  std::vector<int32_t> shown_;
  std::vector<std::string> stops_;
  size_t characters_ = 0;
  std::string held_;  // may be the beginning of a stop string
  std::optional<std::string> stop_;
};

}  // namespace walsh
