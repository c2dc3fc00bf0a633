// Reads GGUF, versions 2 and 3, little-endian, from memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/gguf_types.h"
#include "io/keyed_hash.h"

namespace walsh {

struct GgufContent {
  uint32_t version = 0;
  uint64_t alignment = 0;
  uint64_t data_offset = 0;         // tensor data start here
  std::vector<GgufEntry> metadata;  // pairs are in the file's order
  std::vector<GgufTensor> tensors;  // tensors are in the file's order

  // Returns nullptr if there is no such key or tensor.
  const GgufValue* find(std::string_view key) const;
  const GgufEntry* find_entry(std::string_view key) const;
  const GgufTensor* find_tensor(std::string_view name) const;
  // Throws bad_input naming `where` if the key is absent.
  const GgufValue& get(std::string_view key, std::string_view where) const;

  StringMap<size_t> metadata_index, tensor_index;
};

// Reads and checks the header of a whole file (`bytes` is all of it). Throws bad_input naming
// `where`, the key or tensor and the offset unless all of this holds: magic and version fit; every
// count and length fits into the remaining bytes; keys and names are distinct, of allowed length
// and plain UTF-8; arrays hold no arrays; the alignment is a power of two from 8 to 4096; rank <=
// 4; the element types are known; sizes do not overflow; tensor data are aligned, inside the file
// and disjoint.
GgufContent parse_gguf(std::span<const std::byte> bytes, std::string_view where);

// Returns whether the bytes start like a GGUF file.
bool looks_like_gguf(std::span<const std::byte> bytes);

}  // namespace walsh
