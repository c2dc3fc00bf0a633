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

// Asks for a guess of one text, and takes it.
struct DraftTask {
  int64_t text = -1;                      // what begin() has returned
  std::span<const int32_t> tokens;        // all that is known of the text
  const TokenChooser* chooser = nullptr;  // chooses the tokens; null: the text is only read
  int64_t most = 0;                       // the most tokens to guess
  std::vector<int32_t> drafted = {};      // the guess
};

class DraftSource {
 public:
  virtual ~DraftSource() = default;

  // Announces the model whose texts will be guessed.
  virtual void serve(const Model&) {}
  // Begins a text with these tokens; what is known of texts of the same owner may be used. Returns
  // the text's number, or -1 if it cannot be guessed.
  virtual int64_t begin(std::span<const int32_t> tokens, const std::string& owner) = 0;
  virtual void end(int64_t text) = 0;
  // Guesses what follows the texts.
  virtual void draft(std::span<DraftTask> tasks) = 0;
  // Tells how many tokens of the last guess were right.
  virtual void judge(int64_t text, size_t drafted, size_t right) = 0;
  // Returns whether it guesses from the model's outputs, which see() then gets.
  virtual bool reads_streams() const { return false; }
  // Takes the output of the model's layers for the token at this position of a text, [hidden], in
  // front of the final norm. What was seen from this position on does not count any more.
  virtual void see(int64_t /*text*/, int64_t /*position*/, std::span<const float> /*stream*/) {}
};

}  // namespace walsh
