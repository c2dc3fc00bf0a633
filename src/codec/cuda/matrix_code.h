// How kernels decode a matrix: which decoder, and its tables of levels.
//
// A decoder is a class of device code (scalar/cuda/code_decoder.cuh) that turns a lane's words
// into int8 operands or f16 values; every product kernel is a template over it. A new kind of code
// for GPUs needs a DecoderKind here, a case in with_decoder, a decoder, its packing
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
  trellis4,  // named after the bits of a step of two weights
  trellis5,
  trellis6,
  trellis7,
  trellis8
};
inline constexpr DecoderKind kDecoders[] = {
    DecoderKind::scalar2,  DecoderKind::scalar3,  DecoderKind::scalar4,  DecoderKind::scalar8,
    DecoderKind::product,  DecoderKind::trellis4, DecoderKind::trellis5, DecoderKind::trellis6,
    DecoderKind::trellis7, DecoderKind::trellis8};

template <int Bits>
struct ScalarDecoder;
struct ProductDecoder;
template <int Bits>
struct TrellisDecoder;
template <typename Decoder>
inline constexpr bool kIsTrellis = false;
template <int Bits>
inline constexpr bool kIsTrellis<TrellisDecoder<Bits>> = true;

// Calls body.operator()<Decoder>() with the decoder of that kind.
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

constexpr bool is_trellis(DecoderKind kind) {
  return kind >= DecoderKind::trellis4;
}

// 32-bit words per lane and k-tile (16 rows by 256 columns), four per bit of a weight, and the
// 16-byte vectors that hold them; half of the last vector may be missing in memory.
constexpr int code_words(DecoderKind kind) {
  constexpr int kWords[] = {8, 12, 16, 32, 12, 8, 10, 12, 14, 16};
  return kWords[static_cast<int>(kind)];
}
constexpr int code_vectors(DecoderKind kind) {
  return (code_words(kind) + 3) / 4;
}

// Bytes indexed by code, four per word; tables of 4 and 8 entries use the first words.
struct LevelTable {
  uint32_t words[4];

  bool operator==(const LevelTable&) const = default;
};

// Bytes of the shared memory table of decoders that have one.
constexpr int table_bytes(DecoderKind kind) {
  return kind == DecoderKind::product ? 1024 : 0;
}

struct MatrixCode {
  DecoderKind decoder = DecoderKind::scalar2;
  float unit = 1;  // factor of the int8 levels
  // For scalar codes; product codes have twice the residual in the second byte of levels and low,
  // trellis codes the multiplier in the first word of both.
  LevelTable levels{};       // int8; of 8 bits the code itself
  LevelTable low{}, high{};  // the bytes of the f16 levels
  bool own_table = false;    // the table belongs to the tensor, so that matrices may not share it

  int vectors() const { return code_vectors(decoder); }
  bool operator==(const MatrixCode&) const = default;
};

// Whether kernels know groups of 32 columns of weights or inputs for a pass: 2-bit and product
// codes have scales for at least 128 columns, and inputs that are not rotated have them as well.
constexpr bool has_small_groups(const Format& format, int pass) {
  return format.kind != CodeKind::product && format.code[pass].bits != 2;
}

// Describes a pass of a format. Throws internal for codes that no decoder supports.
MatrixCode matrix_code(const Format& format, int pass);
MatrixCode matrix_code(const ScalarCode& code);

}  // namespace walsh::cuda
