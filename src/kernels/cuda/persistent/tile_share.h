// Divides the tiles of a product among the blocks of a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace walsh::cuda {

// Consecutive tiles of equal weight. The weight is the cost of one tile, in any unit.
struct TileRun {
  int tiles = 0;
  int weight = 1;
};

// Returns the first tile of each of `blocks` blocks, and at the end the number of all tiles. Each
// block gets a range of at least one tile, and the heaviest range is as light as possible. Tiles of
// equal weight are divided as evenly as possible; the first blocks have one more. There must be at
// least as many tiles as blocks.
std::vector<int> share_tiles(std::span<const TileRun> runs, int blocks);

}  // namespace walsh::cuda
