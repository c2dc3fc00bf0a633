// How attention is divided into blocks, and the layout of its scratch memory.
#pragma once

#include <cstdint>

namespace walsh::simd {

struct AttentionBlocks {
  // Positions per block. Blocks start at multiples of this, whatever the queries: that makes the
  // result of a query independent of the batch.
  static constexpr int64_t kKeys = 64;
  // Number of rows (one query of one head each) that share a converted block of keys and values.
  static constexpr int64_t kRows = 144;

  // Row length of values and outputs, a whole number of vectors on every instruction set.
  static constexpr int64_t padded(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

  // keys [head_dim][kKeys], values [kKeys][padded], logits [kRows][kKeys], output [kRows][padded],
  // largest logit and sum of weights [kRows].
  static constexpr int64_t floats(int64_t head_dim) {
    return head_dim * kKeys + kKeys * padded(head_dim) + kRows * kKeys + kRows * padded(head_dim) +
           2 * kRows;
  }
};

}  // namespace walsh::simd
