// Reads log-probabilities of a model that llama.cpp's llama-perplexity wrote
// (--kl-divergence-base). They stand in for the reference. The file is little-endian and has
//   "_logits_", int32 ctx, int32 vocab, int32 windows, int32 tokens[windows][ctx], and for every
//   window and position ctx/2 .. ctx - 2 a row: float scale, float least, uint16 code[vocab], one
//   more if vocab is odd. The log-probability of a token is least + scale * code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/mapped_file.h"

namespace walsh {

class StoredLogits {
 public:
  // Throws io if the file cannot be read, bad_input if it is no such file or has another size.
  explicit StoredLogits(const std::string& path);

  int64_t ctx() const { return ctx_; }
  int64_t vocab() const { return vocab_; }
  int64_t windows() const { return windows_; }
  // Returns the first position of a window whose logits are stored. They predict the token after
  // it.
  int64_t first_position() const { return ctx_ / 2; }
  // Returns the tokens of a window; all are in the vocabulary.
  std::vector<int32_t> tokens(int64_t window) const;
  // Reads the log-probabilities of a position. Those that the writer has cut off because they are
  // 16 below the largest are given as 16 less, so that they add nothing to a divergence.
  void read_row(int64_t window, int64_t position, std::span<float> row) const;

 private:
  MappedFile file_;
  int64_t ctx_ = 0, vocab_ = 0, windows_ = 0;
};

}  // namespace walsh
