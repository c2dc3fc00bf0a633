// Keeps a text within a grammar while its tokens are sampled.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "grammar/token_grammar.h"

namespace walsh {

class Constraint {
 public:
  // `stop_ids` are the tokens that end a text; they are allowed where the grammar may end.
  Constraint(std::shared_ptr<const grammar::TokenGrammar> grammar, std::vector<int32_t> stop_ids)
      : matcher_(std::move(grammar)), stop_ids_(std::move(stop_ids)) {}

  // Returns the logits with minus infinity for every token that may not come next; they are valid
  // until the next call, and empty if the text can only end here. Throws bad_input if no token of
  // the vocabulary can continue the text, limit for a grammar that is too ambiguous.
  std::span<const float> allowed(std::span<const float> logits);
  // Advances by a token that was sampled and is no stop id. Throws as allowed().
  void accept(int32_t token);
  // Returns whether the text can only end now.
  bool ended() const { return matcher_.complete() && !matcher_.can_continue(); }

 private:
  grammar::TokenMatcher matcher_;
  std::vector<int32_t> stop_ids_;
  std::vector<float> logits_;
};

}  // namespace walsh
