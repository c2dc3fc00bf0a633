// Turns generated tokens into text, up to the first stop string.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace walsh {

class StoppedText {
 public:
  // Decodes tokens; `before` are the tokens in front of the first one. `tokenizer` must outlive
  // this. Empty stop strings are ignored.
  StoppedText(const Tokenizer& tokenizer, std::span<const int32_t> before,
              std::vector<std::string> stops);
  // Includes these special tokens in the text. Others are left out.
  void show(const std::vector<std::string>& special_tokens);

  // Returns the text that can be shown now, which is complete UTF-8 without anything that may
  // become a stop string.
  std::string push(int32_t token);
  // Returns the rest, after the last token.
  std::string finish();
  // Returns whether a stop string was found. No text follows it.
  bool stopped() const { return stop_.has_value(); }
  // Returns the number of characters of all tokens so far, including held text and text after a
  // stop string.
  size_t characters() const { return characters_; }
  const std::optional<std::string>& stop() const { return stop_; }  // it is the one that was found

 private:
  std::string release(std::string more, bool all);

  const Tokenizer& tokenizer_;
  StreamDecoder decoder_;  // it includes special tokens
  std::vector<int32_t> shown_;
  std::vector<std::string> stops_;
  size_t characters_ = 0;
  std::string held_;  // it may be the beginning of a stop string
  std::optional<std::string> stop_;
};

}  // namespace walsh
