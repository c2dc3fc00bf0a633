#include "codec/scalar/panels.h"

#include <stdexcept>

#include "base/half.h"
#include "codec/pack_arrays.h"

namespace walsh::detail {
namespace {

uint32_t restore_nibbles(uint32_t word) {
  uint32_t result = 0;
  for (int p = 0; p < 8; ++p)
    result |= (word >> nibble_shift(p) & 0xfu) << (4 * p);
  return result;
}

}  // namespace

bool is_equidistant(const ScalarCode& code) {
  if (code.levels_i8 == nullptr) return false;
  for (int i = 1; i < 1 << code.bits; ++i)
    if (code.levels_i8[i] != code.levels_i8[0] + i) return false;
  return true;
}

PanelMatrix pack_scalar(const Tensor& tensor, int pass) {
  const ScalarCode& code = tensor.format->code[pass];
  const PassArrays& arrays = tensor.pass[pass];
  PanelMatrix w;
  w.code = &code;
  w.rows = tensor.rows;
  w.cols = ceil_div(tensor.cols, kUnitColumns) * kUnitColumns;
  const int64_t stored_group = code.group ? code.group : w.cols;
  const int64_t stored_groups = ceil_div(w.cols, stored_group);
  w.group = code.sub_group ? code.sub_group : stored_group;
  w.offset_group = code.has_offset ? stored_group : 0;
  const bool half_units = w.group == kUnitColumns / 2 && scalar::has_half_units(code.bits);
  const bool special = w.group < kUnitColumns || code.bits == 5 || code.bits == 6;
  if ((w.group < kUnitColumns && !half_units) || (special && !is_equidistant(code)))
    throw std::logic_error("no kernels for this width, group and levels");
  const int64_t groups = ceil_div(w.cols, w.group);

  const int64_t words = w.cols * code.bits / 32;
  require_bytes(arrays.codes, elements(w.rows, words, 4), "codes");
  require_bytes(arrays.scales, elements(w.rows, stored_groups, 2), "scales");
  if (code.sub_group) require_bytes(arrays.sub_scales, elements(w.rows, groups, 2), "sub_scales");
  if (code.has_offset) require_bytes(arrays.offsets, elements(w.rows, stored_groups, 2), "offsets");

  w.codes = AlignedArray<uint32_t>(elements(w.panels(), words, kPanelRows));
  pack_words(arrays.codes, words, w,
             [&](uint32_t word) { return code.bits == 8 ? word : permute_nibbles(word); });
  w.scales = pack_groups(w.rows, groups, [&](int64_t row, int64_t g) {
    const int64_t stored = row * stored_groups + g * w.group / stored_group;
    const uint16_t scale = load_u16(arrays.scales, stored);
    if (!code.sub_group) return scale;
    return f32_to_f16(f16_to_f32(scale) *
                      f16_to_f32(load_u16(arrays.sub_scales, row * groups + g)));
  });
  if (code.has_offset) {
    w.offsets = pack_groups(w.rows, stored_groups, [&](int64_t row, int64_t g) {
      return load_u16(arrays.offsets, row * stored_groups + g);
    });
  }
  return w;
}

void unpack_scalar(const PanelMatrix& w, std::span<std::byte> codes) {
  const bool permuted = w.code->bits != 8;
  unpack_words(w, codes, [&](uint32_t word) { return permuted ? restore_nibbles(word) : word; });
}

}  // namespace walsh::detail
