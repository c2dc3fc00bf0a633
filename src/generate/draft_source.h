// A draft source guesses the next tokens of texts. The model evaluates them together with the last
// token, and the guesses that it would choose itself save it steps (Leviathan et al. 2023). The
// text is always chosen from the model's own logits, so that a guess changes only its speed.
//
// Guesses of a sampled text are chosen with the random numbers that the text will draw: where two
// distributions are alike, the tokens are then alike too (Daliri et al. 2024, "Coupling without
// communication and drafter-invariant speculative decoding").
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "generate/token_chooser.h"

namespace walsh {

class Model;

// Asks for a guess of one text, and receives it.
struct DraftTask {
  int64_t text = -1;                // begin() has returned it
  std::span<const int32_t> tokens;  // these are all known tokens of the text
  // The chooser chooses the tokens; null means that the text is only read.
  const TokenChooser* chooser = nullptr;
  int64_t most = 0;                   // at most this many tokens are guessed
  std::vector<int32_t> drafted = {};  // this is the guess
};

class DraftSource {
 public:
  virtual ~DraftSource() = default;

  // Announces the model whose texts will be guessed.
  virtual void serve(const Model&) {}
  // Begins a text with these tokens; what it has read for texts of the same owner may be used.
  // Returns the text's number, or -1 if it cannot be guessed.
  virtual int64_t begin(std::span<const int32_t> tokens, const std::string& owner) = 0;
  virtual void end(int64_t text) = 0;
  // Guesses the tokens that follow the texts.
  virtual void draft(std::span<DraftTask> tasks) = 0;
  // Tells the source how many tokens of the last guess were right.
  virtual void judge(int64_t text, size_t drafted, size_t right) = 0;
  // Returns whether it guesses from the model's outputs, which see() then gets.
  virtual bool reads_streams() const { return false; }
  // Takes the output of the model's layers for the token at this position of a text, [hidden], in
  // front of the final norm. Outputs that were seen from this position on do not count any more.
  virtual void see(int64_t /*text*/, int64_t /*position*/, std::span<const float> /*stream*/) {}
};

}  // namespace walsh
