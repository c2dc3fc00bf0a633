// Runs the tail-biting Viterbi search of TileSearch (codec/trellis/trellis_search.h) on a GPU: a
// block takes a few tiles at a time through all states. Costs are whole numbers, so the states are
// the same. This is plain data and host code.
#pragma once

#include <cstdint>
#include <vector>

#include "base/cuda/device.h"
#include "codec/format.h"

namespace walsh::cuda::encoding {

inline constexpr int kSearchThreads = 512;
inline constexpr int kTileSize = 256;  // weights

// Returns the levels of all states in one byte each, 128 more than they are, in the order in which
// a thread reads those of its pair of neighbouring classes (trellis_kernels.h):
//   [first bits / 4][pair of classes][first bits % 4][class of the pair][value]
std::vector<uint8_t> packed_levels(const TrellisCode& code);
// Returns the sums of the squares of both levels of all states of a code of bytes: [class][first
// bits ^ 2 (class mod 8)]. A sum is 127 times the upper byte plus the lower one.
std::vector<uint16_t> packed_squares(const TrellisCode& code);

// Says how a search is cut into launches: a block has `group` tiles at a time.
struct TileSearchPlan {
  bool products = false;  // costs as products of tensor cores
  int group = 0, blocks = 0;
  uint64_t shared_bytes = 0;  // of a block
  uint64_t best_bytes = 0;    // of TileSearchArgs::best
};

struct TileSearchArgs {
  const void* levels = nullptr;  // packed_levels, or packed_squares for products
  float target_scale = 0;        // detail::target_scale
  float target_parts = 0;        // detail::target_parts
  uint32_t multiplier = 0;       // of the code
  int step_bits = 0, state_bits = 0;
  int seam = 0;  // weights on either side of it that are searched first
  int64_t tiles = 0;
  const float* targets = nullptr;  // [tiles][kTileSize]
  uint16_t* states = nullptr;      // [tiles][kTileSize], by step
  void* best = nullptr;            // [blocks][steps + 1][classes][tiles of a block], 4 bytes each

  constexpr int classes() const { return 1 << (state_bits - step_bits); }
};

// Holds the tables of a code on the device.
class TileSearchTables {
 public:
  TileSearchTables() = default;
  TileSearchTables(const TrellisCode& code, Stream stream);
  const uint8_t* levels() const { return levels_.as<uint8_t>(); }
  // Returns everything but tiles, targets, states, best and the seam.
  TileSearchArgs args(const TileSearchPlan& plan) const;

 private:
  TrellisCode code_;
  Buffer levels_, squares_;
};

// Returns whether tiles can be searched: codes of one product per step and at least 16 classes.
bool has_tile_search(const TrellisCode& code);
// Returns whether costs can be products: codes of bytes with at least 64 classes. At 4 bits per
// step products would take the time of floats.
bool has_tile_products(const TrellisCode& code);
// Returns what takes the least time for so many tiles on a device.
TileSearchPlan plan_tile_search(const TrellisCode& code, int64_t tiles, const DeviceInfo& device);
// These return the plan of one kind: with products of tensor cores, or with floats.
TileSearchPlan plan_tile_products(const TrellisCode& code, int64_t tiles, const DeviceInfo& device);
TileSearchPlan plan_tile_floats(const TrellisCode& code, int64_t tiles, const DeviceInfo& device);

void launch_tile_search(const TrellisCode& code, const TileSearchPlan& plan,
                        const TileSearchArgs& args, Stream stream);
void launch_tile_products(const TrellisCode& code, const TileSearchPlan& plan,
                          const TileSearchArgs& args, Stream stream);

}  // namespace walsh::cuda::encoding
