#include "kernels/cuda/persistent/tile_share.h"

#include <algorithm>
#include <numeric>

namespace walsh::cuda {
namespace {

// Fills the blocks one after the other with ranges of weight `most` at most, and leaves one tile
// for every later block. Returns nothing if not all tiles fit.
std::vector<int> fill_blocks(std::span<const int64_t> behind, int blocks, int64_t most) {
  const int tiles = static_cast<int>(behind.size()) - 1;
  std::vector<int> first{0};
  for (int block = 0; block < blocks; ++block) {
    const int begin = first.back(), last = tiles - (blocks - 1 - block);
    const auto limit = behind.begin() + last + 1;
    const auto end =
        std::upper_bound(behind.begin() + begin, limit, behind[static_cast<size_t>(begin)] + most);
    const int next = static_cast<int>(end - behind.begin()) - 1;
    if (next == begin) return {};
    first.push_back(next);
  }
  if (first.back() < tiles) return {};
  return first;
}

}  // namespace

std::vector<int> share_tiles(std::span<const TileRun> runs, int blocks) {
  std::vector<int64_t> behind{0};  // weight before each tile; the last entry is the total
  bool equal = true;
  for (const TileRun& run : runs) {
    equal &= run.tiles == 0 || run.weight == runs[0].weight;
    for (int i = 0; i < run.tiles; ++i)
      behind.push_back(behind.back() + run.weight);
  }
  const int tiles = static_cast<int>(behind.size()) - 1;
  if (equal) {
    std::vector<int> first;
    for (int block = 0; block <= blocks; ++block)
      first.push_back(block * (tiles / blocks) + std::min(block, tiles % blocks));
    return first;
  }
  int64_t low = 1, high = behind.back();  // the smallest sufficient limit lies between them
  while (low < high) {
    const int64_t middle = std::midpoint(low, high);
    if (fill_blocks(behind, blocks, middle).empty()) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return fill_blocks(behind, blocks, low);
}

}  // namespace walsh::cuda
