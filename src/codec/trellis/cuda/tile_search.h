// Runs the tail-biting Viterbi search of TileSearch (codec/trellis/trellis_search.h) on a GPU. A
// block takes a few tiles at a time through all states. Costs are whole numbers, so the states are
// the same as on the CPU. The header has plain data and host code.
#pragma once

#include <cstdint>
#include <vector>

#include "base/cuda/device.h"
#include "codec/format.h"

namespace walsh::cuda::encoding {

inline constexpr int kSearchThreads = 512;
inline constexpr int kTileSize = 256;  // A tile has this many weights.

// Returns level + 128 of all states, one byte each, in the order in which a thread reads those of
// its pair of neighbouring classes (trellis_kernels.h):
//   [first bits / 4][pair of classes][first bits % 4][class of the pair][value]
std::vector<uint8_t> packed_levels(const TrellisCode& code);
// Returns, for all states of a code of bytes, the sum of the squares of both levels: [class][first
// bits ^ 2 (class mod 8)]. A sum is stored as 127 times the upper byte plus the lower byte.
std::vector<uint16_t> packed_squares(const TrellisCode& code);

// Says how a search is cut into launches. A block has `group` tiles at a time.
struct TileSearchPlan {
  bool products = false;  // If true, tensor cores make costs as products.
  int group = 0, blocks = 0;
  uint64_t shared_bytes = 0;  // A block needs so much.
  uint64_t best_bytes = 0;    // TileSearchArgs::best needs so much.
};

struct TileSearchArgs {
  const void* levels = nullptr;  // They are packed_levels, or packed_squares for products.
  float target_scale = 0;        // It is detail::target_scale.
  float target_parts = 0;        // It is detail::target_parts.
  uint32_t multiplier = 0;       // The code has this multiplier.
  int step_bits = 0, state_bits = 0;
  // This many weights on either side of the seam are searched first.
  int seam = 0;
  int64_t tiles = 0;
  const float* targets = nullptr;  // Its shape is [tiles][kTileSize].
  uint16_t* states = nullptr;      // Its shape is [tiles][kTileSize], indexed by step.
  // It has the shape [blocks][steps + 1][classes][tiles of a block], with 4 bytes each.
  void* best = nullptr;

  constexpr int classes() const { return 1 << (state_bits - step_bits); }
};

// Holds the tables of a code on the device.
class TileSearchTables {
 public:
  TileSearchTables() = default;
  TileSearchTables(const TrellisCode& code, Stream stream);
  const uint8_t* levels() const { return levels_.as<uint8_t>(); }
  // Returns the arguments, except tiles, targets, states, best and the seam.
  TileSearchArgs args(const TileSearchPlan& plan) const;

 private:
  TrellisCode code_;
  Buffer levels_, squares_;
};

// Returns whether tiles can be searched. That needs a code with one product per step and at least
// 16 classes.
bool has_tile_search(const TrellisCode& code);
// Returns whether tensor cores can make the costs. That needs a code of bytes with at least 64
// classes; at 4 bits per step they would take as long as floats.
bool has_tile_products(const TrellisCode& code);
// Returns the plan that takes the least time for this many tiles on a device.
TileSearchPlan plan_tile_search(const TrellisCode& code, int64_t tiles, const DeviceInfo& device);
// These return the best plan with products of tensor cores, and with floats.
TileSearchPlan plan_tile_products(const TrellisCode& code, int64_t tiles, const DeviceInfo& device);
TileSearchPlan plan_tile_floats(const TrellisCode& code, int64_t tiles, const DeviceInfo& device);

void launch_tile_search(const TrellisCode& code, const TileSearchPlan& plan,
                        const TileSearchArgs& args, Stream stream);
void launch_tile_products(const TrellisCode& code, const TileSearchPlan& plan,
                          const TileSearchArgs& args, Stream stream);

}  // namespace walsh::cuda::encoding
