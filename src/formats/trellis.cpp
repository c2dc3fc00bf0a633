#include "formats/trellis.h"

#include <cstring>

namespace walsh {

// Tail blocks shrink by descending powers of two, one for every bit of the tail's length.
int64_t column_block(int64_t col, int64_t padded) {
  const int64_t tail = padded % kColumnBlock;
  int64_t block = col / kColumnBlock;
  if (block < padded / kColumnBlock) return block;
  int64_t left = col % kColumnBlock;
  for (int64_t size = kColumnBlock / 2; size > 0; size /= 2) {
    if ((tail & size) == 0) continue;
    if (left < size) break;
    left -= size;
    ++block;
  }
  return block;
}

uint32_t trellis_state(const TrellisCode& code, const std::byte* tile, int step) {
  const int bytes = static_cast<int>(tile_bytes(code));
  const int first = code.step_bits * (tile_steps(code) - 1 - step);
  uint32_t window = 0;  // at most 16 bits of state and 7 before them
  for (int i = 0; i < 3; ++i)
    window |= std::to_integer<uint32_t>(tile[(first / 8 + i) % bytes]) << (8 * i);
  return window >> (first % 8) & ((1u << code.state_bits) - 1);
}

void pack_tile(const TrellisCode& code, const uint16_t* states, std::byte* tile) {
  std::memset(tile, 0, static_cast<size_t>(tile_bytes(code)));
  for (int step = 0; step < tile_steps(code); ++step) {
    const int first = code.step_bits * (tile_steps(code) - 1 - step);
    for (int i = 0; i < code.step_bits; ++i) {
      const int bit = first + i;
      tile[bit / 8] |= static_cast<std::byte>((states[step] >> i & 1) << (bit % 8));
    }
  }
}

}  // namespace walsh
