// Tensors that checkpoints store as small floats with scales beside them, as floats that any
// computer has: functions over bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/stored_quantization.h"
#include "codec/tensor.h"

namespace walsh {

inline constexpr int64_t kMxfp4Group = 32;  // values that share a scale in MXFP4

// "[2, 3]", for messages.
std::string shape_text(std::span<const int64_t> shape);

// A tensor in a file.
struct StoredArray {
  std::string_view dtype;  // safetensors' name
  std::span<const int64_t> shape;
  std::span<const std::byte> data;  // as long as type and shape say
  std::string where;                // for messages
};

// F8_E4M3 [rows, cols] times its scales (F32, BF16, F16 or F8_E8M0): one, or [rows / block_rows,
// cols / block_cols] rounded up. The products are f32. Throws bad_input for other types and shapes.
Tensor decode_fp8(const StoredArray& values, const StoredArray& scales,
                  const StoredQuantization& stored);

// U8 [..., rows, groups, 16], low half-byte first, times powers of two U8 [..., rows, groups]: the
// rows [first, first + count) of the matrix of all rows, which has 32 * groups columns. The
// products are bf16, which holds them exactly. Throws bad_input for other types and shapes.
Tensor decode_mxfp4(const StoredArray& blocks, const StoredArray& scales, int64_t first,
                    int64_t count);
int64_t mxfp4_rows(const StoredArray& blocks);  // of all; throws as decode_mxfp4

}  // namespace walsh
