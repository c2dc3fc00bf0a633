// Feeds errors back over tiles (codec/feedback/feedback_strip.h) on a GPU, with the same float
// operations in the same order as on the CPU. The header has plain data and host code.
#pragma once

#include <cstdint>

#include "base/cuda/device.h"

namespace walsh::cuda::encoding {

inline constexpr int64_t kFeedbackColumns = 128;  // It equals FeedbackStrip::kBlock.

// Describes rows [0, rows) of `size` columns each. Matrices have the shape [rows][size].
struct FeedbackArgs {
  int64_t rows = 0, size = 0;
  // It has the rows ErrorFeedback::row, [][size], of which the upper triangle counts.
  const float* factor = nullptr;
  int64_t first = 0;                // Only its rows from `first` on are here.
  const float* diagonal = nullptr;  // It has the factor's diagonal, [size].
  const float* inverse = nullptr;   // Its shape is [size]; it is 1 / diagonal.
  const float* x = nullptr;
  float* rounded = nullptr;               // Columns were rounded to these values.
  float* errors = nullptr;                // They are x - rounded.
  float* sums = nullptr;                  // It is the sum over i < j of errors[i] factor[i][j].
  float* products = nullptr;              // They are rounded times factor.
  const float* target_factors = nullptr;  // Its shape is [rows][blocks].
  const float* level_factors = nullptr;   // Its shape is [rows][blocks].
  int64_t blocks = 0;

  constexpr const float* factor_row(int64_t i) const { return factor + (i - first) * size; }
};

// Names the 16 columns from `col` on, which lie in column block `block`.
struct TileColumn {
  int64_t col = 0, block = 0;
  float* targets = nullptr;          // Its shape is [row tiles][256].
  const uint16_t* states = nullptr;  // Its shape is [row tiles][256].
};

// Holds the levels in the order of packed_levels.
struct LevelTable {
  const uint8_t* levels = nullptr;
  float unit = 1;
  int step_bits = 0, state_bits = 0;
};

// Computes FeedbackStrip::block_targets of all rows, as targets of the search. Behind the last row
// these are zeros.
void launch_targets(const FeedbackArgs& args, const TileColumn& column, Stream stream);
// Does FeedbackStrip::set for all rows.
void launch_set(const FeedbackArgs& args, const TileColumn& column, const LevelTable& table,
                Stream stream);
// Names a product a b that is added to c[rows][size] on columns [first, size). a is columns [begin,
// end) of a matrix, and b is rows [begin, end) of the factor. `first` and `end - begin` are
// multiples of 32.
struct FactorProduct {
  const float* a = nullptr;
  float* c = nullptr;
  int64_t begin = 0, end = 0, first = 0;
};
void launch_product(const FeedbackArgs& args, const FactorProduct& product, Stream stream);
// Computes FeedbackStrip::row_factors from args.products.
void launch_row_factors(const FeedbackArgs& args, double* factors, Stream stream);

}  // namespace walsh::cuda::encoding
