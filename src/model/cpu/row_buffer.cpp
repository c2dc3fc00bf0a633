#include "model/cpu/row_buffer.h"

#include <algorithm>

#include "base/checked.h"

namespace walsh {
namespace {

constexpr int64_t kRowAlignment = 16;  // Rows begin at multiples of 16 floats (64 bytes).

size_t rows_of(int64_t rows, int64_t stride) {
  return static_cast<size_t>(rows * stride);
}

// Returns a distance of rows of int8 that is an odd multiple of 64 bytes. Rows whose distance is a
// power of two would compete for few sets of a cache, while a tile of a matrix unit reads 16 rows.
int64_t int8_stride(int64_t cols) {
  return (round_up(cols, 64) / 64 | 1) * 64;
}

}  // namespace

Workspace::Workspace(const BufferShape& shape, int64_t max_rows) {
  if (shape.planes > 0) {
    quantized =
        ActivationsI8(max_rows, shape.cols, shape.group, shape.planes, int8_stride(shape.cols));
  } else {
    stride = round_up(shape.cols, kRowAlignment);
    rows = AlignedArray<float>(rows_of(max_rows, stride));
  }
}

uint64_t Workspace::bytes(const BufferShape& shape, int64_t rows) {
  if (shape.planes > 0) return rows_of(rows * shape.planes, int8_stride(shape.cols));
  return 4 * rows_of(rows, shape.cols);
}

void Workspace::copy(int64_t to, const Workspace& other, int64_t index) {
  if (stride > 0) {
    std::copy_n(other.rows.data() + index * stride, stride, rows.data() + to * stride);
  } else {
    const ActivationsI8& from = other.quantized;
    const int64_t cols = from.planes * from.cols, groups = from.planes * from.groups();
    const int64_t units = cols / detail::kUnitColumns;
    const int64_t bytes = from.planes * from.stride;
    std::copy_n(from.row(index * from.planes), bytes, quantized.row(to * from.planes));
    std::copy_n(from.scales.data() + index * groups, groups, quantized.scales.data() + to * groups);
    std::copy_n(from.sums.data() + index * units, units, quantized.sums.data() + to * units);
  }
}

RowBuffer::RowBuffer(int64_t max_rows, int64_t columns)
    : width(columns), stride(round_up(columns, kRowAlignment)), values(rows_of(max_rows, stride)) {}

uint64_t RowBuffer::bytes(int64_t max_rows, int64_t width) {
  return sizeof(float) * rows_of(max_rows, round_up(width, kRowAlignment));
}

}  // namespace walsh
