// Finds tokens in a text before the model sees it, by tokenizer.json's "added_tokens".
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/regex.h"
#include "base/step_budget.h"
#include "io/json.h"
#include "io/keyed_hash.h"
#include "text/normalizer.h"
#include "text/vocabulary.h"

namespace walsh {

// A text is cut into such pieces. Each is an added token or, if its id is negative, text between
// two of them.
struct AddedSegment {
  Span span;
  int32_t id;
};

// Finds the longest of many literals at the leftmost possible place.
class LiteralSet {
 public:
  // Throws bad_input for a literal that is empty, too long, or present already.
  void add(std::string_view literal, int32_t value, std::string_view where);
  bool empty() const { return nodes_.size() == 1; }

  struct Match {
    size_t size;
    int32_t value;
  };
  // Returns the longest literal that is a prefix of `text`. Sets `visited` to the number of bytes
  // that were examined.
  std::optional<Match> match(std::string_view text, size_t& visited) const;

 private:
  struct Node {
    int32_t value = -1;  // -1 means that no literal ends here
  };
  static uint64_t edge(uint32_t node, char c) {
    return (uint64_t{node} << 8) | static_cast<uint8_t>(c);
  }

  std::vector<Node> nodes_{1};
  // The edges lead from (node, byte) to a node.
  std::unordered_map<uint64_t, uint32_t, IntegerHash> edges_;
  std::array<bool, 256> first_{};  // some literal begins with these bytes
};

// Finds the added tokens. Const use is thread-safe.
class AddedTokens {
 public:
  // `value` is the array of added tokens, or null. Tokens that the vocabulary lacks are added to
  // it. Throws bad_input for a malformed entry, a repeated token, or an id other than the one that
  // the vocabulary or the order of the entries gives; the entries from index `declared` on carry no
  // id. With `split_special`, special tokens in a text are treated as ordinary text.
  AddedTokens(const Json& value, const Normalizer& normalizer, Vocabulary& vocabulary,
              std::string_view where, size_t declared = SIZE_MAX, bool split_special = false);

  // Splits a text before normalization at the tokens that match the raw text. Throws limit if the
  // step budget is exceeded.
  std::vector<AddedSegment> split_raw(std::string_view text, StepBudget& steps) const {
    return split(raw_, text, steps);
  }
  // Splits a normalized text at the tokens that match normalized text. Throws likewise.
  std::vector<AddedSegment> split_normalized(std::string_view text, StepBudget& steps) const {
    return split(normalized_, text, steps);
  }

  bool is_special(int32_t id) const { return special_.contains(id); }
  // Returns the token as the decoder sees it (normalized if it matches normalized text), or nullptr
  // if `id` is no added token.
  const std::string* decoded_form(int32_t id) const;

 private:
  // Says how one added token matches, and what its text is.
  struct Rule {
    bool single_word, lstrip, rstrip;
    std::string decoded;
  };

  void add(const Json& entry, bool states_id, const Normalizer& normalizer, Vocabulary& vocabulary,
           StepBudget& steps, std::string_view where);
  std::vector<AddedSegment> split(const LiteralSet& literals, std::string_view text,
                                  StepBudget& steps) const;
  bool stands_alone(std::string_view text, Span span, StepBudget& steps) const;

  LiteralSet raw_, normalized_;
  std::unordered_map<int32_t, Rule> rules_;
  std::unordered_set<int32_t> special_;
  Regex word_start_, word_end_;
  int32_t next_id_ = 0;  // the next new token gets this id
  bool split_special_;
};

}  // namespace walsh
