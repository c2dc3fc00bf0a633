// Says where a trellis code's bits are in a lane's words (weights/matrix.h), for host and device.
//
// A lane 4 g + t has, for every 64 columns of a k-tile (a group), the sixteen steps 16 g .. 16 g +
// 15 of tile t: rows g and g + 8 of the tile's columns. They are `2 k` neighbouring bytes of the
// tile, the newest step lowest. Whole words come first, word i of group q being number 4 i + q, so
// that one vector has the newest bits of all groups; for k = 5 and 7, half words of two groups
// follow.
#pragma once

#include <cstdint>

namespace walsh::cuda {

inline constexpr int kTrellisGroups = 4;  // A k-tile has this many groups.

// Returns which byte of a lane's words holds byte `i` (below 2 step_bits) of a group's steps.
constexpr int trellis_byte(int step_bits, int group, int i) {
  const int whole = step_bits / 2;  // These words are whole.
  return i < 4 * whole ? 16 * (i / 4) + 4 * group + i % 4 : 16 * whole + 2 * group + i % 4;
}

// Returns the first byte of a lane's steps in the tile.
constexpr int trellis_tile_byte(int step_bits, int lane) {
  return 2 * step_bits * (7 - lane / 4);
}

// Returns the previous lane, into whose newest bits the states of a lane extend.
constexpr int trellis_lane_before(int lane) {
  return (lane + 28) % 32;
}

}  // namespace walsh::cuda
