// Describes a weight tensor in any format, and declares its decoder, which is the specification.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "codec/format.h"
#include "rotate/rotation.h"

namespace walsh {

// Points to the stored arrays of one pass, row-major, each aligned to 64 bytes in files and in
// memory. The shapes given here are those of scalar codes; see codec/trellis/trellis.h for trellis
// codes and codec/product/product.h for product codes.
struct PassArrays {
  std::span<const std::byte> codes;       // Its shape is [rows][code_bytes_per_row].
  std::span<const std::byte> scales;      // They are fp16, [rows][groups].
  std::span<const std::byte> offsets;     // They are fp16, [rows][groups], if has_offset.
  std::span<const std::byte> sub_scales;  // They are fp16, [rows][sub_groups], if sub_group.
  std::span<const std::byte> col_scales;  // They are fp16 [column blocks], for trellis codes only.
  std::span<const std::byte> codebook;    // It is int8 [256][4], for products with own_codebook.
};

// Selects an array of a pass. The type has a name because nvcc writes it in parentheses in
// declarations that contain it, and then warns of these.
using PassArray = std::span<const std::byte> PassArrays::*;
// Describes a stored array of a pass: it has `rows` rows of `row_bytes` bytes.
struct PassField {
  static constexpr int64_t kAllRows = 0;
  const char* suffix;
  PassArray array;
  int64_t rows;
  uint64_t row_bytes;
  // A row of the array belongs to this many rows of the matrix, or to kAllRows.
  int64_t matrix_rows = 1;
};
// Returns the arrays of pass `pass` of a coded format, in file order. Throws on overflow.
std::vector<PassField> pass_fields(const Format& format, int pass, int64_t rows, int64_t cols);

// Refers to the arrays of a [rows, cols] tensor (a vector has rows = 1). `owner` keeps their memory
// alive.
struct Tensor {
  const Format* format = nullptr;
  int64_t rows = 0, cols = 0;
  std::span<const std::byte> data;  // Dense formats store values here, row-major.
  PassArrays pass[2];
  Rotation rotation[2];  // Each pass has one.
  std::shared_ptr<const void> owner;
  // If true, the arrays are in GPU memory, and a loader for that GPU repacks them.
  bool on_gpu = false;
};

// Describes a stored array of a [rows, cols] tensor, with the suffix of its name and its size.
// Dense formats have one array with an empty suffix. Coded ones have the pass_fields, with suffix
// "2" for the residual pass.
struct ArraySpec {
  std::string suffix;
  uint64_t bytes;
  uint64_t rows;  // Each row has bytes / rows bytes.
};
std::vector<ArraySpec> array_specs(const Format& format, int64_t rows, int64_t cols);

// Points the arrays of `tensor` (format, rows, cols set) at spans given in the order of
// array_specs.
void bind_arrays(Tensor& tensor, std::span<const std::span<const std::byte>> arrays);

uint64_t tensor_bytes(const Format& format, int64_t rows, int64_t cols);
// Returns the storage bits per weight of a format on long rows, scales included.
double nominal_bits(const Format& format);

// Unpacks the codes[padded] of one row of a pass.
void unpack_codes(const ScalarCode& code, const std::byte* row, int64_t padded, uint8_t* codes);
void pack_codes(const ScalarCode& code, const uint8_t* codes, int64_t padded, std::byte* row);

// Dequantizes one row of one pass in the rotated basis to out[padded_cols]: scale * level (+
// offset).
void decode_pass_row(const Tensor& tensor, int pass, int64_t row, float* out);

// Dequantizes whole rows in the original basis to out[(row_end - row_begin) * cols]: passes are
// dequantized, rotated back and added. Dense formats are converted.
void decode_rows(const Tensor& tensor, int64_t row_begin, int64_t row_end, float* out);

}  // namespace walsh
