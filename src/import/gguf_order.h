// Tells the order in which llama.cpp's converter stores rows, columns and values of delta nets and
// of latent attention.
#pragma once

#include <cstdint>

#include "io/checkpoint.h"

namespace walsh {

// In a checkpoint the value heads of one key head are neighbours. A GGUF file may have them tiled.
// Then the first value head of every key head is followed by the second of every key head, and so
// on.
struct GgufOrder {
  int64_t first = 0;      // the value heads begin at this row, column or element
  int64_t key_heads = 0;  // 0 means that they are not tiled
  int64_t group = 0;      // a key head has this many value heads
  int64_t size = 0;       // a value head has this many rows or columns
  bool columns = false;   // the value heads are columns
  bool rates = false;     // the file stores -exp(x) in place of x
  // This many heads, one below the other, are stored transposed; 0 means none.
  int64_t turned = 0;

  // Returns whether the order or the values differ from the checkpoint's.
  bool changes() const { return key_heads != 0 || rates || turned != 0; }
  // Returns the index in the file of the row, column or element that the checkpoint has at `index`.
  int64_t stored(int64_t index) const;
};

// Finds the order of a tensor from the number of heads in the checkpoint's config. Throws bad_input
// naming the tensor if the config does not fit it.
GgufOrder gguf_order(const Checkpoint& checkpoint, const TensorInfo& info);

}  // namespace walsh
