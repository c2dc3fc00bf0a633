// Holds numbers for each place of a grid over an image. They are its patches, and the rows that the
// steps of a vision tower make of them.
#pragma once

#include <cstdint>

#include "base/aligned.h"

namespace walsh::vision {

struct Rows {
  // The grid has rows and columns, and each place has `width` numbers.
  int64_t rows = 0, columns = 0, width = 0;
  AlignedArray<float> values;  // their shape is [rows * columns][width]

  Rows() = default;
  Rows(int64_t grid_rows, int64_t grid_columns, int64_t row_width)
      : rows(grid_rows),
        columns(grid_columns),
        width(row_width),
        values(static_cast<size_t>(grid_rows * grid_columns * row_width)) {}
  int64_t count() const { return rows * columns; }
  float* row(int64_t i) { return values.data() + i * width; }
  const float* row(int64_t i) const { return values.data() + i * width; }
};

}  // namespace walsh::vision
