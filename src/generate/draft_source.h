// What guesses the next tokens of texts. They are evaluated together with the last token, and those
// that would be chosen anyway cost no step (Leviathan et al. 2023). The text chooses from the
// model's own logits whatever was guessed, so that a guess changes its speed alone.
//
// A guess of a sampled text is chosen with the random numbers that the text will draw: where two
// distributions are alike, so are then the tokens (Daliri et al. 2024, "Coupling without
// communication and drafter-invariant speculative decoding").
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "generate/token_chooser.h"

namespace walsh {

class Model;

// A text that is to be guessed.
struct DraftTask {
  int64_t text = -1;                      // what begin() has returned
  std::span<const int32_t> tokens;        // all that is known of it
  const TokenChooser* chooser = nullptr;  // chooses what follows; null: the text is only read
  int64_t most = 0;                       // tokens to guess
  std::vector<int32_t> drafted = {};      // the guess
};

class DraftSource {
 public:
  virtual ~DraftSource() = default;

  // Texts of this model will be guessed.
  virtual void serve(const Model&) {}
  // A text begins with these tokens; what is known of texts of the same owner may be used. Returns
  // its number, or -1 if it cannot be guessed.
  virtual int64_t begin(std::span<const int32_t> tokens, const std::string& owner) = 0;
  virtual void end(int64_t text) = 0;
  // Guesses what follows the texts.
  virtual void draft(std::span<DraftTask> tasks) = 0;
  // So much of the last guess was right.
  virtual void judge(int64_t text, size_t drafted, size_t right) = 0;
  // Returns whether it guesses from what the model gives, which see() then gets.
  virtual bool reads_streams() const { return false; }
  // What the model's layers gave for the token at this position of a text, [hidden], in front of
  // the final norm. What was seen from this position on does not count any more.
  virtual void see(int64_t /*text*/, int64_t /*position*/, std::span<const float> /*stream*/) {}
};

}  // namespace walsh
