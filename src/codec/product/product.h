// Defines the layout of product codes (docs/formats/pq3.md) and what a code means: the
// specification that encoder and kernels share.
//
// Four weights that stand four columns apart share a byte, the number of an entry of the codebook,
// and every weight has a sign of its own:
//   value = scale * level,  level = unit * (codebook[pointer][i] +- residual)
// In a block of 16 columns vector v has the weights v, v + 4, v + 8, v + 12, so that the bytes of a
// word are neighbours of one row. 32 columns are three little-endian words:
//   word 0, 1  byte v: pointer of vector v of columns 0..15 and 16..31
//   word 2     bit n of byte v: 1 if the residual of column 4n + v is taken away
// Arrays of a [rows, cols] tensor, K = padded columns:
//   codes     [rows][K / 32][12 bytes]
//   scales    fp16 [rows][groups]
//   codebook  int8 [256][4], if the tensor has its own
//
// Source: "data-free 3.125 bits per weight" (product quantization and 1-bit residuals); training
// both together, the scale of weights and residual in one, is ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codec/tensor.h"

namespace walsh {

inline constexpr int kProductEntries = 256;
inline constexpr int kProductValues = 4;
inline constexpr int64_t kProductUnitColumns = 32;
inline constexpr int64_t kProductUnitBytes = 12;
inline constexpr int kCodebookBytes = kProductEntries * kProductValues;

constexpr int64_t product_row_bytes(int64_t padded) {
  return padded / kProductUnitColumns * kProductUnitBytes;
}
constexpr int64_t product_groups(const ProductCode& code, int64_t padded) {
  return (padded + code.group - 1) / code.group;
}

// Returns the vector of a column within its block of 16, and which of its weights the column is.
constexpr int product_vector(int64_t col) {
  return static_cast<int>(col % 4);
}
constexpr int product_value(int64_t col) {
  return static_cast<int>(col % 16 / 4);
}

// Returns the pointer of a column's vector and, from the same row of `codes`, the sign of its
// residual.
inline int product_pointer(const std::byte* row, int64_t col) {
  const std::byte* unit = row + col / kProductUnitColumns * kProductUnitBytes;
  return std::to_integer<int>(unit[col % kProductUnitColumns / 16 * 4 + product_vector(col)]);
}
inline bool product_negative(const std::byte* row, int64_t col) {
  const std::byte* unit = row + col / kProductUnitColumns * kProductUnitBytes;
  return (std::to_integer<int>(unit[8 + product_vector(col)]) >> (col % 32 / 4) & 1) != 0;
}

// Returns the level of a weight in units. codebook is [256][4]; |entry| + residual is at most 127.
inline int product_level_i8(const ProductCode& code, const int8_t* codebook, const std::byte* row,
                            int64_t col) {
  const int entry = codebook[product_pointer(row, col) * kProductValues + product_value(col)];
  return product_negative(row, col) ? entry - code.residual : entry + code.residual;
}
inline float product_level(const ProductCode& code, const int8_t* codebook, const std::byte* row,
                           int64_t col) {
  return code.unit * static_cast<float>(product_level_i8(code, codebook, row, col));
}

// Sets a row of `codes` from pointers[padded / 4], four per block of 16 columns, and
// negative[padded], each 0 or 1.
void pack_product_row(const uint8_t* pointers, const uint8_t* negative, int64_t padded,
                      std::byte* row);

// Returns the codebook [256][4] of a tensor, which is its own or that of the format.
inline const int8_t* product_codebook(const Tensor& tensor) {
  if (!tensor.format->product.own_codebook) return tensor.format->product.codebook;
  return reinterpret_cast<const int8_t*>(tensor.pass[0].codebook.data());
}
// Throws bad_input for a stored codebook with levels that do not fit in int8.
void check_codebook(const ProductCode& code, const int8_t* codebook);

}  // namespace walsh
