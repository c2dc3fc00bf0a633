#include "model/by_head.h"

#include <cstring>

#include "base/aligned.h"
#include "base/half.h"

namespace walsh {
namespace {

// Decodes the matrix to float32 [rows, cols] and, with `output`, rotates its outputs back.
AlignedArray<float> decode(const Tensor& stored, const Rotator* output, ThreadPool& pool) {
  const int64_t rows = stored.rows, cols = stored.cols;
  AlignedArray<float> values(static_cast<size_t>(rows * cols));
  pool.for_ranges(rows, 1, [&](int64_t begin, int64_t end) {
    decode_rows(stored, begin, end, values.data() + begin * cols);
  });
  if (output == nullptr) return values;
  pool.for_ranges(cols, 1, [&](int64_t begin, int64_t end) {
    AlignedArray<float> column(static_cast<size_t>(rows));
    for (int64_t c = begin; c < end; ++c) {
      for (int64_t r = 0; r < rows; ++r)
        column[static_cast<size_t>(r)] = values.data()[r * cols + c];
      output->invert(column.data());
      for (int64_t r = 0; r < rows; ++r)
        values.data()[r * cols + c] = column[static_cast<size_t>(r)];
    }
  });
  return values;
}

void put(DType type, float value, int64_t at, std::byte* out) {
  if (type == DType::f32) {
    std::memcpy(out + 4 * at, &value, 4);
    return;
  }
  const uint16_t half = type == DType::bf16 ? f32_to_bf16(value) : f32_to_f16(value);
  std::memcpy(out + 2 * at, &half, 2);
}

}  // namespace

Tensor decode_heads(const Tensor& stored, const Rotator* output, int64_t heads, bool transposed,
                    ThreadPool& pool) {
  const int64_t rows = stored.rows / heads, cols = stored.cols;
  const AlignedArray<float> values = decode(stored, output, pool);
  Tensor plain;
  // What is not plain becomes fp16, as MatrixForm says.
  plain.format = stored.format->dense ? stored.format : &get_format("f16");
  plain.rows = transposed ? heads * cols : stored.rows;
  plain.cols = transposed ? rows : cols;
  const DType type = plain.format->dtype;
  auto memory = std::make_shared<AlignedArray<std::byte>>(values.size() * dtype_size(type));
  pool.for_ranges(stored.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t head = r / rows, row = r % rows;
      for (int64_t c = 0; c < cols; ++c) {
        const int64_t at = transposed ? (head * cols + c) * rows + row : r * cols + c;
        put(type, values.data()[r * cols + c], at, memory->data());
      }
    }
  });
  plain.data = {memory->data(), memory->size()};
  plain.owner = memory;
  return plain;
}

}  // namespace walsh
