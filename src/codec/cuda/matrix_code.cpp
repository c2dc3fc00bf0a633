#include "codec/cuda/matrix_code.h"

#include <string>

#include "base/half.h"
#include "codec/kernels.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

[[noreturn]] void refuse(const std::string& reason) {
  throw Error(ErrorCode::internal, "GPU weights", reason);
}

void set_byte(LevelTable& table, int code, uint32_t byte) {
  table.words[code / 4] |= (byte & 0xffu) << (8 * (code % 4));
}

MatrixCode product_code(const ProductCode& code) {
  MatrixCode out;
  out.decoder = DecoderKind::product;
  out.unit = code.unit;
  set_byte(out.levels, 1, static_cast<uint32_t>(2 * code.residual));
  out.low = out.levels;
  out.own_table = code.own_codebook;
  return out;
}

MatrixCode trellis_code(const TrellisCode& code) {
  MatrixCode out;
  out.decoder =
      static_cast<DecoderKind>(static_cast<int>(DecoderKind::trellis4) + code.step_bits - 4);
  out.unit = code.unit;
  out.levels.words[0] = out.low.words[0] = code.multiplier;
  return out;
}

}  // namespace

MatrixCode matrix_code(const ScalarCode& code) {
  MatrixCode out;
  out.decoder = scalar_decoder(code.bits);
  if (row_of(out.decoder).bits != code.bits)
    refuse("no decoder for codes of " + std::to_string(code.bits) + " bits");
  out.unit = code.unit;
  if (code.bits == 8) return out;
  for (int c = 0; c < 1 << code.bits; ++c) {
    const int8_t level = code.levels_i8[c];
    // Kernels for four bits negate the levels of codes below 8, so these levels must be negative
    // and the others must not be.
    if (code.bits == 4 && ((level < 0) != (c < 8) || level == INT8_MIN))
      refuse("levels that are not in order");
    const uint16_t half = f32_to_f16(code.levels[c]);
    set_byte(out.levels, c, static_cast<uint8_t>(level));
    set_byte(out.low, c, half);
    set_byte(out.high, c, static_cast<uint32_t>(half) >> 8);
  }
  return out;
}

MatrixCode matrix_code(const Format& format, int pass) {
  if (pass < format.passes && format.kind == CodeKind::scalar)
    return matrix_code(format.code[pass]);
  if (pass < format.passes && format.kind == CodeKind::product) return product_code(format.product);
  if (pass < format.passes && format.kind == CodeKind::trellis &&
      has_kernel(format, Kernel::gpu_products))
    return trellis_code(format.trellis);
  refuse("no decoder for " + std::string(format.name));
}

}  // namespace walsh::cuda
