// Fits the scales of trellis tensors, which are a factor per row times one per column block.
#pragma once

#include <cstdint>
#include <vector>

namespace walsh::detail {

// Holds mean squares of a rotated matrix, [rows][blocks], and the columns of each block.
struct BlockPowers {
  int64_t rows = 0;
  std::vector<int> sizes;  // A block has this many columns.
  std::vector<double> mean;

  BlockPowers(int64_t rows, int64_t padded);
  int64_t blocks() const { return static_cast<int64_t>(sizes.size()); }
  void set_row(int64_t row, const float* x);
};

struct RankOneScales {
  std::vector<float> row, col;  // row may be any float; fp16 can hold col exactly.
  // This share of the squared mean squares is not explained by row^2 x col^2, beyond what Gaussian
  // weights of constant variance would show by chance.
  double unexplained = 0;
};

// Fits by alternating: each row's factor is the rms of the row divided by the column factors, and
// the reverse. Rows and blocks of zeros get the factor 0.
RankOneScales fit_rank_one(const BlockPowers& powers);

}  // namespace walsh::detail
