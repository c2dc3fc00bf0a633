// The bytes of a model's tokens in the order in which a grammar's automaton reads them.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "grammar/stack_space.h"
#include "text/tokenizer.h"

namespace walsh::grammar {

// One bit per token.
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
  // 64 tokens each, the first ones in the low bits.
  const std::vector<uint64_t>& words() const { return words_; }

 private:
  static uint64_t bit(int32_t token) { return uint64_t{1} << (token % 64); }

  std::vector<uint64_t> words_;
};

// Texts of tokens, those that begin alike together, so that what they begin with is read once.
class TokenTree {
 public:
  // Pairs of a text, which is not empty, and a token.
  explicit TokenTree(std::vector<std::pair<std::string, int32_t>> tokens);

  // Adds the tokens that can be read from `state`.
  void add_readable(StackSpace& space, StateId state, TokenSet& tokens) const;

 private:
  // In preorder. The tokens whose text ends here are tokens_[first] to that of the next node.
  struct Node {
    uint32_t end;    // the first node that is not below it
    uint32_t first;  // in tokens_
    uint16_t depth;
    uint8_t byte;
  };
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
  size_t longest_ = 0;
};

// Immutable, made once per model.
class TokenVocabulary {
 public:
  // `size` counts the model's logits. A special token has the text kSpecialMark and its own.
  TokenVocabulary(const Tokenizer& tokenizer, int64_t size);
  // The same from the texts of the tokens; empty ones are never allowed.
  explicit TokenVocabulary(std::vector<std::string> texts);

  size_t size() const { return texts_.size(); }
  const std::string& text(int32_t token) const { return texts_[static_cast<size_t>(token)]; }

  // All tokens that can be read from `state`. Throws limit as StackSpace.
  TokenSet readable(StackSpace& space, StateId state) const;

 private:
  struct Plain {
    uint32_t characters;
    int32_t token;
  };
  void sort_tokens();

  std::vector<std::string> texts_;
  // Tokens of printable characters other than quotes and backslashes, which most of all are and
  // which texts in most grammars take or refuse together: StackSpace::next_plain() says which.
  std::vector<Plain> plain_;  // by their characters
  TokenSet all_plain_;
  std::vector<TokenTree> trees_;  // of the plain tokens, and of the others
};

}  // namespace walsh::grammar
