// Says how kernels decode a matrix: with which decoder and tables of levels.
//
// A decoder (scalar/cuda/code_decoder.cuh) is a class of device code that turns a lane's words into
// int8 operands or f16 values; every product kernel is a template over it. A new kind of code for
// GPUs needs a DecoderKind here, a case in with_decoder, a decoder, its packing
// (kernels/cuda/weights/matrix.cu), its kernels (cmake/cuda_kernels.cmake) and dequantize.cu.
#pragma once

#include <cstdint>

#include "codec/format.h"

namespace walsh::cuda {

enum class DecoderKind : uint8_t {
  scalar2,
  scalar3,
  scalar4,
  scalar8,
  product,
  trellis4,  // The number in a name is the bits of a step of two weights.
  trellis5,
  trellis6,
  trellis7,
  trellis8
};

// Holds what kernels and the host have to know of a decoder. Rows of the table are in the order of
// DecoderKind.
struct DecoderRow {
  DecoderKind kind;
  int bits;  // A scalar code has this many bits; 0: it is another kind of code.
  // A lane has this many 32-bit words per k-tile (16 rows by 256 columns), which is four per bit of
  // a weight.
  int words;
  // If these are set, kernels are compiled for scales that hold for 32 columns, or for 128 columns.
  bool small_groups, large_groups;
  // It is the largest number of int8 planes of inputs that a format with this code asks for.
  int planes;
  int table_bytes = 0;  // Blocks keep a table of this size in shared memory.
};
inline constexpr DecoderRow kDecoders[] = {
    {DecoderKind::scalar2, 2, 8, false, true, 1},
    {DecoderKind::scalar3, 3, 12, true, true, 1},
    {DecoderKind::scalar4, 4, 16, true, true, 2},
    {DecoderKind::scalar8, 8, 32, true, false, 2},
    {DecoderKind::product, 0, 12, false, true, 1, 1024},
    {DecoderKind::trellis4, 0, 8, true, true, 1},
    {DecoderKind::trellis5, 0, 10, true, true, 1},
    {DecoderKind::trellis6, 0, 12, true, true, 1},
    {DecoderKind::trellis7, 0, 14, true, true, 1},
    {DecoderKind::trellis8, 0, 16, true, true, 1},
};

constexpr const DecoderRow& row_of(DecoderKind kind) {
  return kDecoders[static_cast<int>(kind)];
}
static_assert([] {
  for (const DecoderRow& row : kDecoders)
    if (row_of(row.kind).kind != row.kind) return false;
  return true;
}());

// Returns the decoder of scalar codes of this width, or that of the first row if no row has it.
constexpr DecoderKind scalar_decoder(int bits) {
  for (const DecoderRow& row : kDecoders)
    if (row.bits == bits) return row.kind;
  return kDecoders[0].kind;
}
constexpr bool is_trellis(DecoderKind kind) {
  return kind >= DecoderKind::trellis4;
}
constexpr int code_words(DecoderKind kind) {
  return row_of(kind).words;
}
// Returns how many 16-byte vectors hold a lane's words. Half of the last one may be missing in
// memory.
constexpr int code_vectors(DecoderKind kind) {
  return (code_words(kind) + 3) / 4;
}

template <int Bits>
struct ScalarDecoder;
struct ProductDecoder;
template <int Bits>
struct TrellisDecoder;
template <typename Decoder>
inline constexpr bool kIsTrellis = false;
template <int Bits>
inline constexpr bool kIsTrellis<TrellisDecoder<Bits>> = true;
template <typename Decoder>
inline constexpr int kScalarBits = 0;  // Decoders of other kinds of codes have this width.
template <int Bits>
inline constexpr int kScalarBits<ScalarDecoder<Bits>> = Bits;

// Calls body.operator()<Decoder>() with the decoder class of that kind.
template <typename Body>
decltype(auto) with_decoder(DecoderKind kind, const Body& body) {
  switch (kind) {
    case DecoderKind::scalar2:
      return body.template operator()<ScalarDecoder<2>>();
    case DecoderKind::scalar3:
      return body.template operator()<ScalarDecoder<3>>();
    case DecoderKind::scalar4:
      return body.template operator()<ScalarDecoder<4>>();
    case DecoderKind::product:
      return body.template operator()<ProductDecoder>();
    case DecoderKind::trellis4:
      return body.template operator()<TrellisDecoder<4>>();
    case DecoderKind::trellis5:
      return body.template operator()<TrellisDecoder<5>>();
    case DecoderKind::trellis6:
      return body.template operator()<TrellisDecoder<6>>();
    case DecoderKind::trellis7:
      return body.template operator()<TrellisDecoder<7>>();
    case DecoderKind::trellis8:
      return body.template operator()<TrellisDecoder<8>>();
    default:
      return body.template operator()<ScalarDecoder<8>>();
  }
}

// Holds bytes that are indexed by code, four per word. Tables of 4 and 8 entries use the first
// words.
struct LevelTable {
  uint32_t words[4];

  bool operator==(const LevelTable&) const = default;
};

constexpr int table_bytes(DecoderKind kind) {
  return row_of(kind).table_bytes;
}

// Returns whether kernels are compiled that sum `flush` columns in integers. `flush` is 32 or 128,
// the number of columns for which a scale holds.
constexpr bool has_flush(DecoderKind kind, int flush) {
  return flush == 32 ? row_of(kind).small_groups : row_of(kind).large_groups;
}

struct MatrixCode {
  DecoderKind decoder = DecoderKind::scalar2;
  float unit = 1;  // It multiplies the int8 levels.
  // Scalar codes use the tables as described. Product codes have twice the residual in the second
  // byte of `levels` and `low`; trellis codes have the multiplier in the first word of both.
  LevelTable levels{};       // It has int8 levels; an 8-bit code is the level.
  LevelTable low{}, high{};  // They have the lower and upper bytes of the f16 levels.
  // If true, the table belongs to the tensor, so matrices may not share it.
  bool own_table = false;

  int vectors() const { return code_vectors(decoder); }
  bool operator==(const MatrixCode&) const = default;
};

// Returns whether kernels know groups of 32 columns of weights or inputs for a pass. If they do
// not, inputs that are not rotated get larger groups, too.
constexpr bool has_small_groups(const Format& format, int pass) {
  if (format.kind == CodeKind::product) return row_of(DecoderKind::product).small_groups;
  return format.kind != CodeKind::scalar ||
         row_of(scalar_decoder(format.code[pass].bits)).small_groups;
}

// Describes a pass of a format for kernels. Throws internal for codes that no decoder supports.
MatrixCode matrix_code(const Format& format, int pass);
MatrixCode matrix_code(const ScalarCode& code);

}  // namespace walsh::cuda
