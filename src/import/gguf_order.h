// Tells the order in which llama.cpp's converter stores rows, columns and values of delta nets and
// of latent attention.
#pragma once

#include <cstdint>

#include "io/checkpoint.h"

namespace walsh {

// In a checkpoint the value heads of one key head are neighbours. A GGUF file may have them tiled:
// the first value head of every key head, then the second of every key head, and so on.
struct GgufOrder {
  int64_t first = 0;      // row, column or element where the value heads begin
  int64_t key_heads = 0;  // 0: not tiled
  int64_t group = 0;      // value heads per key head
  int64_t size = 0;       // rows or columns per value head
  bool columns = false;   // the value heads are columns
  bool rates = false;     // the file stores -exp(x) in place of x
  // This many heads, one below the other, are stored transposed; 0: none.
  int64_t turned = 0;

  // Returns whether the order or the values differ from the checkpoint's.
  bool changes() const { return key_heads != 0 || rates || turned != 0; }
  // Returns the index in the file of what the checkpoint has at `index`.
  int64_t stored(int64_t index) const;
};

// Finds the order of a tensor from the number of heads in the checkpoint's config. Throws bad_input
// naming the tensor if the config does not fit it.
GgufOrder gguf_order(const Checkpoint& checkpoint, const TensorInfo& info);

}  // namespace walsh
