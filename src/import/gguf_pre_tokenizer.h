// The names that GGUF files give to the patterns of byte-level BPE tokenizers.
#pragma once

#include <span>
#include <string_view>

namespace walsh {

struct GgufPreTokenizer {
  // Regular expressions that cut a text one after the other.
  std::span<const std::string_view> patterns;
  bool whole_words = false;  // a word that is a token is not merged: "ignore_merges"
  bool adds_bos = false;     // where the file does not say
};

// By tokenizer.ggml.pre; nullptr for an unknown name.
const GgufPreTokenizer* gguf_pre_tokenizer(std::string_view name);

}  // namespace walsh
