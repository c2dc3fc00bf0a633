// Chooses the tokens of one text on the host, one after the other or several of a draft at once. It
// alone defines what sampling, grammars and drafts mean for all that continues texts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "generate/token_chooser.h"

namespace walsh {

enum class StopReason : uint8_t { stop_token, max_tokens, context_full, callback };

// Tells how far a text has come and how far it may go.
struct TextProgress {
  int64_t max_tokens = -1;  // at most this many tokens may be chosen; -1 means any number
  int64_t capacity = 0;     // the context has this many positions
  // Prompt and chosen tokens take this many positions, of which the last is not evaluated yet.
  int64_t positions = 0;
  int64_t chosen = 0;  // this many tokens were chosen

  // Returns the most tokens that may be drafted after the last one.
  int64_t draft_room() const;
  // Returns why the text ends after the token that was chosen last, or nothing if it goes on.
  // `wanted` tells that its reader wants more, `complete` that only the end may follow.
  std::optional<StopReason> end(bool wanted, bool complete) const;
};

class TextChooser {
 public:
  explicit TextChooser(const ChoiceOptions& options) : chooser_(options) {}

  // Reads a token that the text begins with.
  void read(int32_t token) { chooser_.read(token); }
  // Returns the token that continues the text. Throws as TokenChooser.
  std::optional<int32_t> choose(std::span<const float> logits);
  bool ended() const { return chooser_.ended(); }
  // Returns the chooser of the next token, so that drafts can be guessed with it.
  const TokenChooser& next() const { return chooser_; }

  // Sets tokens that may follow the last one and are evaluated after it. choose() gets the logits
  // of all, from those of the last token on, as long as is_right().
  void set_draft(std::vector<int32_t> tokens);
  const std::vector<int32_t>& drafted() const { return drafted_; }
  // Returns whether the token that was chosen last is the one that was drafted for its place.
  bool is_right() const { return right_; }

 private:
  TokenChooser chooser_;
  std::vector<int32_t> drafted_;
  size_t chosen_ = 0;  // this many tokens were chosen since the draft was made
  bool right_ = true;
};

}  // namespace walsh
