// Tells which tiles of a launch's items a block multiplies. The tiles of all items with slots, one
// item behind the other, are divided evenly among the blocks, so that all of them end together
// however many experts were chosen.
#pragma once

#include <cstdint>

#include "kernels/cuda/experts/expert_slots.h"

namespace walsh::cuda {

// Says how blocks divide an item's tiles: in units of `grain` tiles, of which the last may have
// fewer.
struct ExpertTiles {
  int tiles = 0, grain = 1;
  // This many blocks have tiles of one item only, the same number for each item; 0: blocks go from
  // item to item.
  int blocks_of_item = 0;

  constexpr int units() const { return (tiles + grain - 1) / grain; }
};

// Describes a share, which is consecutive units of the items with slots.
struct ExpertShare {
  int begin = 0, end = 0;

  constexpr int first_item(const ExpertTiles& of) const { return begin / of.units(); }
  // Returns how many items have some of its units.
  constexpr int parts(const ExpertTiles& of) const {
    return begin == end ? 0 : (end - 1) / of.units() - first_item(of) + 1;
  }
};

// Names units [begin, end) of one item of a share.
struct ExpertPart {
  int begin = 0, end = 0;

  constexpr int first_tile(const ExpertTiles& of) const { return begin * of.grain; }
  constexpr int tile_count(const ExpertTiles& of) const {
    const int last = end * of.grain;
    return (last < of.tiles ? last : of.tiles) - first_tile(of);
  }
};

// Returns share number `block` of `blocks` shares of `units` units.
constexpr ExpertShare even_share(int units, int block, int blocks) {
  const int each = units / blocks, more = units % blocks;
  const int begin = each * block + (block < more ? block : more);
  return {begin, begin + each + (block < more ? 1 : 0)};
}

// Returns the share of block `block` of `blocks`, if `items` items have slots.
constexpr ExpertShare share_of(int items, const ExpertTiles& of, int block, int blocks) {
  const int units = of.units();
  if (of.blocks_of_item == 0) return even_share(items * units, block, blocks);
  const int item = block / of.blocks_of_item;
  if (item >= items) return {};
  const ExpertShare own = even_share(units, block - item * of.blocks_of_item, of.blocks_of_item);
  return {item * units + own.begin, item * units + own.end};
}

constexpr ExpertPart part_of(const ExpertShare& share, const ExpertTiles& of, int part) {
  const int units = of.units(), first = (share.first_item(of) + part) * units;
  return {part == 0 ? share.begin - first : 0,
          share.end - first < units ? share.end - first : units};
}

// Describes a part of an item's work, as a block keeps it in its shared memory.
struct alignas(16) ExpertWork {
  ExpertItem item;
  int32_t first_tile, tiles;
  ExpertPart part;
};

// A block has parts of at most this many items. A launch has as many blocks as that takes.
inline constexpr int kMostExpertParts = 16;
constexpr int64_t expert_blocks(int64_t places, int64_t processors) {
  const int64_t each = processors * (kMostExpertParts - 2);
  return processors * ((places + each - 1) / each);
}

}  // namespace walsh::cuda
