// Applies a grammar to the tokens of a vocabulary, to tell which tokens may come next.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/distinct_items.h"
#include "grammar/graph.h"
#include "grammar/stack_space.h"
#include "grammar/token_vocabulary.h"

namespace walsh::grammar {

// Results computed for one text are reused by all others of the same grammar; they take at most
// some 32 MiB. A TokenGrammar is thread-safe.
class TokenGrammar {
 public:
  // Messages name the grammar by `where`. Throws limit if the beginning is too ambiguous to follow.
  TokenGrammar(Graph graph, std::shared_ptr<const TokenVocabulary> vocabulary, std::string where);

  const TokenVocabulary& vocabulary() const { return *vocabulary_; }
  const std::string& where() const { return where_; }

 private:
  friend class TokenMatcher;
  // Keeps states, and the masks of those that were asked for.
  struct Known {
    Known(const Graph& graph, const std::string& where) : space(graph, where) {}
    std::mutex mutex;
    StackSpace space;
    // The most recently used masks come first.
    std::list<std::pair<StateId, std::shared_ptr<const TokenSet>>> masks;
    std::unordered_map<StateId, decltype(masks)::iterator> places;
  };

  std::shared_ptr<Known> known() const;
  // Starts a new one because `full` has become too large, unless another matcher has done so.
  std::shared_ptr<Known> replace(const std::shared_ptr<Known>& full) const;

  const Graph graph_;
  const std::shared_ptr<const TokenVocabulary> vocabulary_;
  TokenSet brackets_, quotes_;  // they have '[' and '"', where the items of some lists differ
  const std::string where_;
  mutable std::mutex mutex_;  // it guards known_
  mutable std::shared_ptr<Known> known_;
};

// Follows one text. It is not thread-safe.
class TokenMatcher {
 public:
  explicit TokenMatcher(std::shared_ptr<const TokenGrammar> grammar);

  // Returns the tokens that may come next. Throws limit where the grammar is too ambiguous.
  std::shared_ptr<const TokenSet> allowed();
  // Advances by a token. Returns false, changing nothing, if it is not allowed. Throws as
  // allowed().
  bool accept(int32_t token);
  // Returns whether the text may end here.
  bool complete() const { return complete_; }
  // Returns whether anything may follow.
  bool can_continue() const { return can_continue_; }

 private:
  void look();
  TokenSet without_repeated(const TokenSet& tokens);

  std::shared_ptr<const TokenGrammar> grammar_;
  std::shared_ptr<TokenGrammar::Known> known_;
  StateId state_ = StackSpace::kDead;
  DistinctItems items_;
  bool complete_ = false, can_continue_ = false;
};

// Sets the logits of tokens that are not allowed to minus infinity; those in `ends` are kept if the
// text may end. Returns false if no token is left.
bool mask_logits(TokenMatcher& matcher, std::span<const int32_t> ends, std::span<float> logits);

}  // namespace walsh::grammar
