// Feeds errors back over tiles (codec/feedback/feedback_strip.h) on a GPU, with the same float
// operations in the same order as on the CPU. This is plain data and host code.
#pragma once

#include <cstdint>

#include "base/cuda/device.h"

namespace walsh::cuda::encoding {

inline constexpr int64_t kFeedbackColumns = 128;  // the same as FeedbackStrip::kBlock

// Describes rows [0, rows) of `size` columns each; matrices are [rows][size].
struct FeedbackArgs {
  int64_t rows = 0, size = 0;
  const float* factor = nullptr;    // ErrorFeedback::row: [][size], upper triangle;
  int64_t first = 0;                // only its rows from `first` on are here
  const float* diagonal = nullptr;  // [size], of the factor
  const float* inverse = nullptr;   // [size], 1 / diagonal
  const float* x = nullptr;
  float* rounded = nullptr;               // the values that columns were rounded to
  float* errors = nullptr;                // x - rounded
  float* sums = nullptr;                  // sum over i < j of errors[i] factor[i][j]
  float* products = nullptr;              // rounded times factor
  const float* target_factors = nullptr;  // [rows][blocks]
  const float* level_factors = nullptr;   // [rows][blocks]
  int64_t blocks = 0;

  constexpr const float* factor_row(int64_t i) const { return factor + (i - first) * size; }
};

// A tile column has 16 columns from `col` on, in column block `block`.
struct TileColumn {
  int64_t col = 0, block = 0;
  float* targets = nullptr;          // [row tiles][256]
  const uint16_t* states = nullptr;  // [row tiles][256]
};

// Holds the levels as packed_levels gives them.
struct LevelTable {
  const uint8_t* levels = nullptr;
  float unit = 1;
  int step_bits = 0, state_bits = 0;
};

// Computes FeedbackStrip::block_targets of all rows as targets of the search; behind the last row,
// zeros.
void launch_targets(const FeedbackArgs& args, const TileColumn& column, Stream stream);
// Does FeedbackStrip::set for all rows.
void launch_set(const FeedbackArgs& args, const TileColumn& column, const LevelTable& table,
                Stream stream);
// Adds a b to c[rows][size] on columns [first, size), where a is columns [begin, end) of a matrix
// and b is rows [begin, end) of the factor. `first` and `end - begin` are multiples of 32.
struct FactorProduct {
  const float* a = nullptr;
  float* c = nullptr;
  int64_t begin = 0, end = 0, first = 0;
};
void launch_product(const FeedbackArgs& args, const FactorProduct& product, Stream stream);
// Computes FeedbackStrip::row_factors from args.products.
void launch_row_factors(const FeedbackArgs& args, double* factors, Stream stream);

}  // namespace walsh::cuda::encoding
