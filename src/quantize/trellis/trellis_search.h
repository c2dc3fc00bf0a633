// The tail-biting Viterbi search of one tile (docs/formats/tc.md).
#pragma once

#include <cstdint>
#include <optional>

#include "base/aligned.h"
#include "quantize/scalar/encoder.h"
#include "quantize/trellis/trellis_kernels.h"
#include "quantize/trellis/whole_search.h"

namespace walsh::detail {

// Weights on either side of a tile's seam that decide where its cycle closes: the whole tile, or
// few of them for compressing while loading (1 % more error, a third less time).
constexpr int seam_weights(Effort effort) {
  return effort == Effort::full ? 128 : 32;
}

// Working memory of one thread; `table` must outlive it.
class TileSearch {
 public:
  TileSearch(const TrellisTable& table, int seam_weights);

  // States of the steps of a tile whose levels come near x[kTileWeights], in the order of the
  // sequence. The states form a cycle: each follows from the one before, the first from the last.
  void encode(const float* x, uint16_t* states);
  // The same of `tiles` tiles, x[tiles][kTileWeights] and states[tiles][kTileWeights]; several
  // together take less time than one after the other.
  void encode(const float* x, int tiles, uint16_t* states);

 private:
  static constexpr int kAtOnce = TrellisTable::kTilesAtOnce;

  float* best(int tile) { return best_.data() + tile * best_size(); }
  int64_t best_size() const { return int64_t{steps_ + 1} * table_.classes(); }
  void forward(const float* const* x, int tiles, int steps);
  void encode_together(const float* x, int tiles, uint16_t* states);
  void trace(const float* x, int steps, const float* best, int last_class, uint16_t* states) const;
  int seam_class(const float* window, int steps, const float* best) const;

  const TrellisTable& table_;
  int steps_, seam_weights_;
  AlignedArray<float> best_;          // [kAtOnce][steps + 1][classes]
  std::optional<WholeSearch> whole_;  // for codes with whole costs, in the place of all else
};

}  // namespace walsh::detail
