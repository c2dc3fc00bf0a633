// The tail-biting Viterbi search of TileSearch (quantize/trellis/trellis_search.h) on a GPU: a
// block takes a few tiles at a time through all states, with the same float operations in the same
// order, so the states are the same. Plain data and host code.
#pragma once

#include <cstdint>
#include <vector>

#include "base/cuda/device.h"
#include "formats/format.h"

namespace walsh::cuda::encoding {

inline constexpr int kSearchThreads = 512;
inline constexpr int kTileSize = 256;  // weights

// Levels of all states in one byte each, 128 more than they are, in the order in which a thread
// reads those of its pair of neighbouring classes (trellis_kernels.h):
//   [first bits / 4][pair of classes][first bits % 4][class of the pair][value]
std::vector<uint8_t> packed_levels(const TrellisCode& code);

struct TileSearchArgs {
  const uint8_t* levels = nullptr;  // packed_levels
  float unit = 1;
  int step_bits = 0, state_bits = 0;
  int seam = 0;  // weights on either side of it that are searched first
  int64_t tiles = 0;
  const float* targets = nullptr;  // [tiles][kTileSize]
  uint16_t* states = nullptr;      // [tiles][kTileSize], by step
  float* best = nullptr;           // [blocks][steps + 1][classes][tiles of a block]

  constexpr int classes() const { return 1 << (state_bits - step_bits); }
};

// How a search is cut into launches: a block has `group` tiles at a time.
struct TileSearchPlan {
  int group = 0, blocks = 0;
  uint64_t shared_bytes = 0;  // of a block
  uint64_t best_bytes = 0;    // of TileSearchArgs::best
};

// Codes of one or two weights per step with at least 16 classes and 4 states of each.
bool has_tile_search(const TrellisCode& code);
// The group that takes the least time for so many tiles on a device of so many multiprocessors.
TileSearchPlan plan_tile_search(const TrellisCode& code, int64_t tiles, int multiprocessors);

// Uses args.tiles and all pointers.
void launch_tile_search(const TrellisCode& code, const TileSearchPlan& plan,
                        const TileSearchArgs& args, Stream stream);

}  // namespace walsh::cuda::encoding
