// Runs the tail-biting Viterbi search of tiles (docs/formats/tc.md).
#pragma once

#include <cstdint>

#include "base/aligned.h"
#include "codec/scalar/encoder.h"
#include "codec/trellis/trellis_kernels.h"

namespace walsh::detail {

// Returns how many weights on either side of a tile's seam decide where its cycle closes: the whole
// tile, or few of them for compressing while loading (1 % more error, a third less time).
constexpr int seam_weights(Effort effort) {
  return effort == Effort::full ? 128 : 32;
}

// Finds the states of tiles. A free search around the seam finds a class, then the search over the
// tile begins and ends in that class.
//
// Where the free search is as long as a tile, it goes on to the tile's end. If the best path that
// ends there in the class came through it at the seam, no path from the class is better; and as
// costs are exact, every path from the class differs by one number from what the second search
// would give it, so that of equal paths the same is chosen. Only the tiles whose best path came
// another way, about one in seven, are searched again.
//
// Each thread needs its own.
class TileSearch {
 public:
  // `table` must outlive the search.
  TileSearch(const TrellisTable& table, int seam_weights);

  // Writes to states[tiles][kTileWeights] the states of the steps of `tiles` tiles whose levels
  // come near x[tiles][kTileWeights], in the order of the sequence. The states of a tile form a
  // cycle: each follows from the one before, the first from the last. Encoding several tiles
  // together takes less time.
  void encode(const float* x, int tiles, uint16_t* states);

 private:
  static constexpr int kAtOnce = TrellisTable::kTilesAtOnce;
  // The costs of tiles stand this far apart, so that reading them does not use only few cache sets.
  static constexpr int64_t kBetween = 5 * 64 / sizeof(int32_t);

  bool covers_tile() const { return 2 * seam_ >= steps_; }
  int64_t tile_size() const { return int64_t{steps_ + 1} * table_.classes() + kBetween; }
  int32_t* row(int tile, int number) {
    return best_.data() + tile * tile_size() + int64_t{number} * table_.classes();
  }
  int16_t* targets(int tile) { return targets_.data() + tile * 2 * int64_t{seam_ + steps_}; }
  void encode_together(const float* x, int tiles, uint16_t* states);
  void set_targets(const float* x, int tile);
  void forward(const int* tiles, int count, int begin, int steps);
  int seam_class(int tile);
  int trace(int tile, int steps, int last_class, uint16_t* states);

  const TrellisTable& table_;
  // A tile has `steps_` steps; `seam_` steps in front of its seam are searched, too.
  int steps_, seam_;
  AlignedArray<int32_t> best_;     // Its shape is [kAtOnce][steps + 1][classes].
  AlignedArray<int16_t> targets_;  // Its shape is [kAtOnce][seam + steps][2].
};

}  // namespace walsh::detail
