// Does the work around the search for the states of a row of tiles: targets before it, codes and
// scales after it.
#pragma once

#include <vector>

#include "codec/encode/encode_source.h"
#include "codec/encode/encode_tensor.h"
#include "codec/trellis/trellis.h"
#include "codec/trellis/trellis_kernels.h"
#include "codec/trellis/trellis_scales.h"

namespace walsh::detail {

// All rows of tiles of a tensor share this.
struct TrellisJob {
  const Tensor& tensor;
  const TensorStorage& storage;
  const TrellisTable& table;
  const BlockPowers& powers;
  const RankOneScales& scales;
};

class TileRowEncoder {
 public:
  // Encodes the row of tiles whose first row is `row`.
  TileRowEncoder(const TrellisJob& job, int64_t row);

  int64_t tiles() const { return padded_ / kTileCols; }
  // Sets targets[count] of the tiles from tile `first` on. x[kTileRows][padded] has rotated rows,
  // and zeros beyond the last one.
  void set_targets(const float* x, int64_t first, int64_t count, float* targets) const;
  // Stores the codes of the tiles from tile `first` on, from states[count][kTileWeights].
  void accept(const float* x, int64_t first, int64_t count, const uint16_t* states);
  // Sets the scales of the rows, after all tiles were accepted.
  void store_scales() const;

 private:
  // Returns the scale with which a block of a row starts; 0 if all its weights are zero.
  float& start(int row, int64_t block) {
    return start_[static_cast<size_t>(row * blocks_ + block)];
  }
  void set_start_scales();
  void add_products(const float* x, int64_t block, const uint16_t* states);

  const TrellisJob& job_;
  const TrellisCode& code_;
  int64_t first_row_, padded_, blocks_;
  int rows_;
  std::vector<float> start_;                        // [kTileRows][blocks]
  double xq_[kTileRows] = {}, qq_[kTileRows] = {};  // <x, q>, <q, q> per row
  std::vector<double> block_xq_, block_qq_;         // the same per row and block
};

}  // namespace walsh::detail
