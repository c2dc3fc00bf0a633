// The states of a text's tokens as one vector.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "generate/embedding_config.h"
#include "model/final_norm.h"

namespace walsh {

class PooledState {
 public:
  // The number of the last of `rows` tokens, the first of them at `position`, whose states are
  // needed; `ends`: these are the last ones of the text.
  static int64_t needed(Reading pooling, int64_t position, int64_t rows, bool ends);

  // What the model's layers gave for the token at a position; those of a text come in their order.
  // Position 0 begins anew.
  void add(Reading pooling, int64_t position, std::span<const float> stream, const FinalNorm& norm);
  // Throws bad_input if they are not finite.
  std::span<const float> values();

 private:
  std::vector<float> values_, state_;
  std::vector<double> sums_;
  int64_t count_ = 0;
};

}  // namespace walsh
