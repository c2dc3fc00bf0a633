// DRY ("don't repeat yourself") penalizes tokens that would extend a repetition of an earlier
// sequence, by the length of the repetition. It equals llama.cpp's sampler of this name, after
// p-e-w's proposal for text-generation-webui (2024).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/sampler_options.h"
#include "text/tokenizer.h"

namespace walsh {

// These texts end a repetition, so that the structure of a conversation may repeat.
struct SequenceBreakers {
  const Tokenizer* tokenizer = nullptr;  // it must outlive this
  std::vector<std::string> texts;
};

// Returns the breakers of a text, or null if DRY is off. Null `texts` stand for the default ones;
// the only text "none" stands for no breakers.
std::shared_ptr<const SequenceBreakers> make_breakers(const SamplerOptions& options,
                                                      const Tokenizer& tokenizer,
                                                      const std::vector<std::string>* texts);

// Returns llama.cpp's defaults, which are line feed, colon, quotation mark and asterisk.
const std::vector<std::string>& default_sequence_breakers();

// Keeps the tokens of a text and finds its repetitions.
class DryHistory {
 public:
  DryHistory(const SamplerOptions& options, std::shared_ptr<const SequenceBreakers> breakers);

  bool active() const { return multiplier_ != 0 && last_n_ != 0; }
  void read(int32_t token);
  // Returns the penalties to subtract from the logits of tokens. The time is linear in the number
  // of tokens.
  std::unordered_map<int32_t, float> penalties();

 private:
  bool breaks(int32_t token);

  float multiplier_, base_;
  int64_t allowed_, last_n_;
  std::shared_ptr<const SequenceBreakers> breakers_;
  size_t longest_breaker_ = 0;
  std::string tail_;  // a breaker may have begun in this end of the text
  std::vector<int32_t> tokens_;
  int64_t unbroken_ = 0;  // this many tokens follow the last breaker
  std::vector<int64_t> matches_;
};

}  // namespace walsh
