// Keeps a text within a grammar while its tokens are chosen.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "grammar/token_grammar.h"

namespace walsh {

class Constraint {
 public:
  // `stop_ids` end a text where the grammar lets it end.
  Constraint(std::shared_ptr<const grammar::TokenGrammar> grammar, std::vector<int32_t> stop_ids)
      : matcher_(std::move(grammar)), stop_ids_(std::move(stop_ids)) {}

  // The same logits, minus infinity for every token that may not come next; valid until the next
  // call. Empty if the text can only end here. Throws bad_input if the vocabulary has no token with
  // which it can go on, limit for a grammar that is too ambiguous.
  std::span<const float> allowed(std::span<const float> logits);
  // Goes behind a token that was chosen; one that ends the text is none. Throws as allowed().
  void accept(int32_t token);
  // Whether nothing may follow but the end.
  bool ended() const { return matcher_.complete() && !matcher_.can_continue(); }

 private:
  grammar::TokenMatcher matcher_;
  std::vector<int32_t> stop_ids_;
  std::vector<float> logits_;
};

}  // namespace walsh
