// Chooses the next token of a text from logits, by sampling options and a grammar. A copy chooses
// the same tokens from the same logits, so that draft sources guess with copies.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "generate/constraint.h"
#include "generate/sampler.h"
#include "generate/sampling_options.h"
#include "generate/thinking_budget.h"

namespace walsh {

// Says how the tokens of a text are chosen.
struct ChoiceOptions {
  SamplerOptions sampler;
  std::vector<TokenBias> biases;
  std::shared_ptr<const SequenceBreakers> breakers;  // DRY uses them.
  std::vector<int32_t> stop_ids;                     // They end the text and are no part of it.
  // The text has to match it; null: any text does.
  std::shared_ptr<const grammar::TokenGrammar> grammar;

  std::shared_ptr<const ThinkingLimit> thinking;  // Null does not limit the reasoning.

  // Returns whether a device that chooses tokens by itself can do it.
  bool on_devices() const {
    return walsh::on_devices(sampler) && biases.empty() && !grammar && !thinking;
  }
  bool stops(int32_t token) const;
};

class TokenChooser {
 public:
  explicit TokenChooser(const ChoiceOptions& options);

  // Takes a token that the text begins with into account.
  void read(int32_t token) { sampler_.read(token); }
  // Returns the token that follows the text, chosen by its logits, and appends it to the text;
  // nothing if the text can only end. Throws as Sampler and Constraint.
  std::optional<int32_t> choose(std::span<const float> logits);
  // Returns whether nothing may follow but the end.
  bool ended() const { return constraint_ && constraint_->ended(); }

 private:
  Sampler sampler_;
  std::optional<Constraint> constraint_;
  std::shared_ptr<const ThinkingLimit> limit_;
  std::optional<ThinkingBudget> budget_;
};

}  // namespace walsh
