// Lists the pre-tokenizer patterns of byte-level BPE, by the names that GGUF files give them.
#pragma once

#include <span>
#include <string_view>

namespace walsh {

struct GgufPreTokenizer {
  // These regular expressions are applied one after the other to split a text.
  std::span<const std::string_view> patterns;
  // A word that is a token is not merged (tokenizer.json's "ignore_merges").
  bool whole_words = false;
  bool adds_bos = false;  // files without the key have it as default
};

// Looks up a value of tokenizer.ggml.pre. Returns nullptr for an unknown name.
const GgufPreTokenizer* gguf_pre_tokenizer(std::string_view name);

}  // namespace walsh
