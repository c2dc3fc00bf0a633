// Tokens that are found in the text before the model sees it: tokenizer.json's "added_tokens".
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "io/json.h"
#include "text/normalizer.h"
#include "text/regex.h"
#include "text/vocabulary.h"

namespace walsh {

// A piece of a text: an added token, or (id < 0) text between them.
struct AddedSegment {
  Span span;
  int32_t id;
};

// Finds the longest of many literals at the leftmost possible place.
class LiteralSet {
 public:
  // Throws bad_input for an empty literal, one that is too long, or one that is there already.
  void add(std::string_view literal, int32_t value, std::string_view where);
  bool empty() const { return nodes_.size() == 1; }

  struct Match {
    size_t size;
    int32_t value;
  };
  // The longest literal with which `text` begins.
  std::optional<Match> match(std::string_view text) const;

 private:
  struct Node {
    int32_t value = -1;  // -1: no literal ends here
  };
  static uint64_t edge(uint32_t node, char c) {
    return (uint64_t{node} << 8) | static_cast<uint8_t>(c);
  }

  std::vector<Node> nodes_{1};
  std::unordered_map<uint64_t, uint32_t> edges_;  // (node, byte) -> node
  std::array<bool, 256> first_{};                 // bytes with which a literal begins
};

// Const use is thread-safe.
class AddedTokens {
 public:
  // `value` is the array of added tokens, or null. Tokens that the vocabulary lacks are added to
  // it. Throws bad_input for a malformed entry, a repeated token, or an id other than the one that
  // the vocabulary or the order of the entries gives.
  AddedTokens(const Json& value, const Normalizer& normalizer, Vocabulary& vocabulary,
              std::string_view where);

  // Cuts a text before normalization at the tokens that match the raw text.
  std::vector<AddedSegment> split_raw(std::string_view text) const { return split(raw_, text); }
  // Cuts a normalized text at the tokens whose normalized form is searched.
  std::vector<AddedSegment> split_normalized(std::string_view text) const {
    return split(normalized_, text);
  }

  bool is_special(int32_t id) const { return special_.contains(id); }
  // The token as the decoder sees it (normalized if it is searched so); nullptr: no added token.
  const std::string* decoded_form(int32_t id) const;

 private:
  // How one added token matches, and its text.
  struct Rule {
    bool single_word, lstrip, rstrip;
    std::string decoded;
  };

  void add(const Json& entry, const Normalizer& normalizer, Vocabulary& vocabulary,
           int32_t& next_id, std::string_view where);
  std::vector<AddedSegment> split(const LiteralSet& literals, std::string_view text) const;
  bool stands_alone(std::string_view text, Span span) const;

  LiteralSet raw_, normalized_;
  std::unordered_map<int32_t, Rule> rules_;
  std::unordered_set<int32_t> special_;
  Regex word_start_, word_end_;
};

}  // namespace walsh
