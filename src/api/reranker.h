// A reranker is a model that judges by the tokens "yes" and "no" whether a document answers a
// query, as Qwen3-Reranker does (Zhang et al. 2025, "Qwen3 Embedding"; its model card has the
// prompt).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/load.h"

namespace walsh {

class Reranker {
 public:
  // Returns a reranker of the model, or nothing if the model lacks one of the two tokens.
  static std::optional<Reranker> of(const LoadedModel& model);
  // Returns whether a model's name says that it ranks.
  static bool is_named(std::string_view name);

  // Returns the prompt of a document; up to the document all prompts of a query are alike. An empty
  // instruction stands for that of the model card.
  std::vector<int32_t> prompt(const Tokenizer& tokenizer, std::string_view instruction,
                              std::string_view query, std::string_view document) const;
  // Returns the probability of "yes" against "no" after a prompt. Throws bad_input where their
  // logits are not finite.
  float score(std::span<const float> logits) const;

 private:
  int32_t yes_ = -1, no_ = -1;
  std::vector<int32_t> begin_, end_;
};

}  // namespace walsh
