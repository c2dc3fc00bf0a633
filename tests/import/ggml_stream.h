// Makes random blocks of ggml's types, the same as those of tools/make_gguf_goldens.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

namespace walsh::test {

inline constexpr size_t kStreamBlocks = 512;

// Returns, by the type's name, its id, a block with its values, and which bytes are those of
// scales.
inline nlohmann::json ggml_goldens() {
  std::ifstream file(WALSH_TEST_DATA "/gguf_blocks.json");
  return nlohmann::json::parse(file);
}

// Returns pseudo-random blocks. `clear` lists the places of the upper bytes of fp16 scales in a
// block; a bit of their exponents is cleared there, so that the scales stay below 2.
inline std::vector<std::byte> ggml_stream(size_t block_bytes, const nlohmann::json& clear) {
  std::vector<std::byte> bytes(kStreamBlocks * block_bytes);
  uint64_t state = 1;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
  for (size_t block = 0; block < kStreamBlocks; ++block)
    for (const size_t at : clear)
      bytes[block * block_bytes + at] &= std::byte{0xBF};
  return bytes;
}

}  // namespace walsh::test
