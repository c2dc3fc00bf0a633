// Arranges the texts of a model's tokens for a grammar's automaton.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "grammar/stack_space.h"
#include "text/tokenizer.h"

namespace walsh::grammar {

// A set has one bit per token.
class TokenSet {
 public:
  explicit TokenSet(size_t tokens = 0) : words_((tokens + 63) / 64) {}

  void add(int32_t token) { words_[static_cast<size_t>(token) / 64] |= bit(token); }
  void remove(int32_t token) { words_[static_cast<size_t>(token) / 64] &= ~bit(token); }
  bool has(int32_t token) const {
    return (words_[static_cast<size_t>(token) / 64] & bit(token)) != 0;
  }
  void add_all(const TokenSet& other);
  void keep_only(const TokenSet& other);
  template <typename Call>
  void for_each(Call call) const {
    for (size_t i = 0; i < words_.size(); ++i)
      for (uint64_t left = words_[i]; left != 0; left &= left - 1)
        call(static_cast<int32_t>(64 * i) + std::countr_zero(left));
  }
  bool empty() const;
  size_t bytes() const { return words_.size() * sizeof(uint64_t); }
  // Returns the words of 64 tokens, the first token in the lowest bit.
  const std::vector<uint64_t>& words() const { return words_; }

 private:
  static uint64_t bit(int32_t token) { return uint64_t{1} << (token % 64); }

  std::vector<uint64_t> words_;
};

// Arranges token texts as a prefix tree, so that common prefixes are read once.
class TokenTree {
 public:
  // Takes pairs of a non-empty text and a token.
  explicit TokenTree(std::vector<std::pair<std::string, int32_t>> tokens);

  // Adds the tokens that can be read from `state`.
  void add_readable(StackSpace& space, StateId state, TokenSet& tokens) const;

 private:
  // Nodes are in preorder. Tokens whose text ends here are tokens_[first] up to that of the next
  // node.
  struct Node {
    uint32_t end;    // this is the first node that is not below this one
    uint32_t first;  // the node's tokens begin here in tokens_
    uint16_t depth;
    uint8_t byte;
  };
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
  size_t longest_ = 0;
};

// A vocabulary is immutable and made once per model.
class TokenVocabulary {
 public:
  // `size` is the number of the model's logits. A special token has the text kSpecialMark + its
  // own.
  TokenVocabulary(const Tokenizer& tokenizer, int64_t size);
  // Takes the texts of the tokens; tokens with an empty text are never allowed.
  explicit TokenVocabulary(std::vector<std::string> texts);

  size_t size() const { return texts_.size(); }
  const std::string& text(int32_t token) const { return texts_[static_cast<size_t>(token)]; }

  // Returns all tokens that can be read from `state`. Throws limit as StackSpace.
  TokenSet readable(StackSpace& space, StateId state) const;

 private:
  struct Plain {
    uint32_t characters;
    int32_t token;
  };

  std::vector<std::string> texts_;
  // These tokens consist of printable characters other than quotes and backslashes. Most tokens do,
  // and in most grammars texts accept or refuse them all: StackSpace::next_plain() tells.
  std::vector<Plain> plain_;  // they are sorted by their characters
  TokenSet all_plain_;
  std::vector<TokenTree> trees_;  // the first is of the plain tokens, the second of all others
};

}  // namespace walsh::grammar
