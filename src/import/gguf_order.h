// The order of rows, columns and values that llama.cpp's converter gives to the tensors of delta
// nets and of latent attention.
#pragma once

#include <cstdint>

#include "io/checkpoint.h"

namespace walsh {

// Value heads stand key head after key head in a checkpoint: the first group of them reads key head
// 0. In a file they may be tiled: one of every key head, then the next one of every key head.
struct GgufOrder {
  int64_t first = 0;      // row, column or element where the value heads begin
  int64_t key_heads = 0;  // 0: nothing is tiled
  int64_t group = 0;      // value heads of a key head
  int64_t size = 0;       // rows or columns of a value head
  bool columns = false;   // they are columns
  bool rates = false;     // the file has -exp(x) in place of x
  // Of so many heads, one below the other, each is stored transposed; 0: none.
  int64_t turned = 0;

  // Whether the order or the values differ from the checkpoint's.
  bool changes() const { return key_heads != 0 || rates || turned != 0; }
  // Where the file has what the checkpoint has at `index`.
  int64_t stored(int64_t index) const;
};

// Of a tensor of a GGUF file, whose checkpoint's config tells the heads. Throws bad_input naming
// the tensor if the config does not fit it.
GgufOrder gguf_order(const Checkpoint& checkpoint, const TensorInfo& info);

}  // namespace walsh
