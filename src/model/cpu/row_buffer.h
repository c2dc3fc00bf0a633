// Holds what the CPU's executor computes for the rows of a batch.
#pragma once

#include <cstdint>

#include "base/aligned.h"
#include "kernels/ops.h"
#include "model/model.h"

namespace walsh {

// Holds the values of every row of a batch. Each row is aligned to 64 bytes.
struct RowBuffer {
  int64_t width = 0, stride = 0;
  AlignedArray<float> values;  // The shape is [max_rows][stride].

  RowBuffer() = default;
  RowBuffer(int64_t max_rows, int64_t width);
  static uint64_t bytes(int64_t max_rows, int64_t width);
  float* row(int64_t index) { return values.data() + index * stride; }
};

// Holds a prepared input of every row: int8 planes, or float32 rows of `stride` values.
struct Workspace {
  ActivationsI8 quantized;
  AlignedArray<float> rows;
  int64_t stride = 0;

  Workspace() = default;
  Workspace(const BufferShape& shape, int64_t max_rows);
  static uint64_t bytes(const BufferShape& shape, int64_t max_rows);
  bool empty() const { return rows.empty() && quantized.q.empty(); }
  // Copies row `index` of `other`, which has the same shape, to row `to`.
  void copy(int64_t to, const Workspace& other, int64_t index);
};

}  // namespace walsh
