// Which tiles of a product each block of a step has.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace walsh::cuda {

// Tiles one after the other, of the same weight: what one costs, in any unit.
struct TileRun {
  int tiles = 0;
  int weight = 1;
};

// The first tile of each of `blocks` blocks, and the number of all behind them: ranges in order of
// which each has a tile at least and the heaviest is as light as can be; tiles of equal weight are
// shared as evenly as can be, the first blocks having one more. There are at least as many tiles as
// blocks.
std::vector<int> share_tiles(std::span<const TileRun> runs, int blocks);

}  // namespace walsh::cuda
