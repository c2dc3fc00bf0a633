// Does what surrounds the search for the states of a row of tiles: makes targets before it, and
// stores codes and scales after it.
#pragma once

#include <vector>

#include "codec/encode/encode_source.h"
#include "codec/encode/encode_tensor.h"
#include "codec/trellis/trellis.h"
#include "codec/trellis/trellis_kernels.h"
#include "codec/trellis/trellis_scales.h"

namespace walsh::detail {

// Holds what all rows of tiles of a tensor share.
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
  // Sets the scales of the rows. All tiles must have been accepted before.
  void store_scales() const;

 private:
  // Returns the scale with which a block of a row starts; 0 if all of its weights are zero.
  float& start(int row, int64_t block) {
    return start_[static_cast<size_t>(row * blocks_ + block)];
  }
  void set_start_scales();
  void add_products(const float* x, int64_t block, const uint16_t* states);

  const TrellisJob& job_;
  const TrellisCode& code_;
  int64_t first_row_, padded_, blocks_;
  int rows_;
  std::vector<float> start_;                        // Its shape is [kTileRows][blocks].
  double xq_[kTileRows] = {}, qq_[kTileRows] = {};  // For each row, they sum up x q and q^2.
  std::vector<double> block_xq_, block_qq_;         // These are the sums of a row and block.
};

}  // namespace walsh::detail
