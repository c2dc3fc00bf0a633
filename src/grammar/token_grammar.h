// A grammar over the tokens of a vocabulary: which of them may come next.
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

// What was computed for one text is there for all others of the same grammar; it takes at most some
// 32 MiB. From any thread.
class TokenGrammar {
 public:
  // `where` is for messages. Throws limit if the beginning is too ambiguous to be followed.
  TokenGrammar(Graph graph, std::shared_ptr<const TokenVocabulary> vocabulary, std::string where);

  const TokenVocabulary& vocabulary() const { return *vocabulary_; }
  const std::string& where() const { return where_; }

 private:
  friend class TokenMatcher;
  // States, and the sets of tokens of those that were asked for.
  struct Known {
    Known(const Graph& graph, const std::string& where) : space(graph, where) {}
    std::mutex mutex;
    StackSpace space;
    std::list<std::pair<StateId, std::shared_ptr<const TokenSet>>> masks;  // the latest first
    std::unordered_map<StateId, decltype(masks)::iterator> places;
  };

  std::shared_ptr<Known> known() const;
  // A new one after `full` has become too large, unless another matcher has made it.
  std::shared_ptr<Known> replace(const std::shared_ptr<Known>& full) const;

  const Graph graph_;
  const std::shared_ptr<const TokenVocabulary> vocabulary_;
  TokenSet brackets_, quotes_;  // tokens with '[' and '"', where the items of some lists differ
  const std::string where_;
  mutable std::mutex mutex_;  // of known_
  mutable std::shared_ptr<Known> known_;
};

// Follows one text. Not for use by several threads at once.
class TokenMatcher {
 public:
  explicit TokenMatcher(std::shared_ptr<const TokenGrammar> grammar);

  // The tokens that may come next. Throws limit where the grammar is too ambiguous.
  std::shared_ptr<const TokenSet> allowed();
  // Goes behind a token. False if it is not allowed; nothing changes then. Throws as allowed().
  bool accept(int32_t token);
  // Whether the text may end here.
  bool complete() const { return complete_; }
  // Whether anything may follow.
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

// Sets the logits of all other tokens to minus infinity; those in `ends` are left as they are if
// the text may end. False if nothing is left.
bool mask_logits(TokenMatcher& matcher, std::span<const int32_t> ends, std::span<float> logits);

}  // namespace walsh::grammar
