// Chooses the tokens of one text on the host, one after the other or several of a draft at once:
// the one meaning of sampling, grammars and look-up for whoever continues texts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "generate/constraint.h"
#include "generate/ngram.h"
#include "generate/sampler.h"
#include "generate/sampling_options.h"

namespace walsh {

// How the tokens of a text are chosen.
struct ChoiceOptions {
  SamplerOptions sampler;
  std::vector<TokenBias> biases;
  std::shared_ptr<const SequenceBreakers> breakers;      // for DRY
  std::vector<int32_t> stop_ids;                         // end the text and are not part of it
  std::shared_ptr<const grammar::TokenGrammar> grammar;  // that it has to match; null: anything

  // Whether a device that chooses tokens by itself can do it.
  bool on_devices() const { return walsh::on_devices(sampler) && biases.empty() && !grammar; }
  bool stops(int32_t token) const;
};

enum class StopReason : uint8_t { stop_token, max_tokens, context_full, callback };

// How far a text has come and how far it may go.
struct TextProgress {
  int64_t max_tokens = -1;  // the most that may be chosen; -1: any number
  int64_t capacity = 0;     // of the context, in positions
  int64_t positions = 0;    // of prompt and chosen tokens, of which the last is not evaluated yet
  int64_t chosen = 0;       // tokens

  // The most tokens that may be drafted after the last one.
  int64_t draft_room() const;
  // Why the text ends after the token that was chosen last; nothing: it goes on. `wanted`: its
  // reader wants more; `complete`: only the end may follow.
  std::optional<StopReason> end(bool wanted, bool complete) const;
};

class TextChooser {
 public:
  // `lookup`: tokens are drafted where the text repeats itself (generate/ngram.h).
  TextChooser(const ChoiceOptions& options, bool lookup);

  // A token that the text begins with.
  void read(int32_t token);
  // The token behind the text by its logits, which it then goes on with; nothing if it can only
  // end. Throws as Sampler and Constraint.
  std::optional<int32_t> choose(std::span<const float> logits);
  // Whether nothing may follow but the end.
  bool ended() const { return constraint_ && constraint_->ended(); }

  // At most `most` tokens that may follow the last one, to be evaluated behind it. The logits of
  // all go to choose(), from those of the last token on, as long as is_right().
  const std::vector<int32_t>& draft(int64_t most);
  const std::vector<int32_t>& drafted() const { return drafted_; }
  // Whether what was chosen last is what was drafted for its place.
  bool is_right() const { return right_; }
  // So many of the draft were right; there is none any more.
  void judge(size_t right);

 private:
  Sampler sampler_;
  std::optional<Constraint> constraint_;
  std::optional<NgramDraft> lookup_;
  std::vector<int32_t> drafted_;
  size_t chosen_ = 0;  // since the draft was made
  bool right_ = true;
};

}  // namespace walsh
