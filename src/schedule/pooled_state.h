// Makes one vector of the states of a text's tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "generate/embedding_config.h"
#include "model/final_norm.h"

namespace walsh {

class PooledState {
 public:
  // Returns how many of the last ones of `rows` tokens need their states read; the first of the
  // tokens is at `position`, and `ends` tells that the last of them is the text's last one.
  static int64_t needed(Reading pooling, int64_t position, int64_t rows, bool ends);

  // Takes the output of the model's layers for the token at a position. The tokens of a text come
  // in their order; position 0 begins anew.
  void add(Reading pooling, int64_t position, std::span<const float> stream, const FinalNorm& norm);
  // Returns the vector. Throws bad_input if its values are not finite.
  std::span<const float> values();

 private:
  std::vector<float> values_, state_;
  std::vector<double> sums_;
  int64_t count_ = 0;
};

}  // namespace walsh
