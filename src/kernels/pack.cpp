// Repacking of stored rows into panels of 16 interleaved rows, and the activation buffers.
#include <bit>
#include <cstring>
#include <string>

#include "base/checked.h"
#include "base/half.h"
#include "formats/product.h"
#include "kernels/ops.h"
#include "kernels/panel_layout.h"
#include "walsh/error.h"

namespace walsh {

namespace {

using detail::ceil_div;
using detail::kUnitColumns;

void require_bytes(std::span<const std::byte> array, uint64_t needed, const char* name) {
  if (array.size() >= needed) return;
  throw Error(ErrorCode::bad_input, std::string("array '") + name + "'",
              "has " + std::to_string(array.size()) + " bytes, expected " + std::to_string(needed));
}

uint64_t elements(int64_t a, int64_t b, uint64_t size) {
  return checked_mul(checked_mul(static_cast<uint64_t>(a), static_cast<uint64_t>(b), "panels"),
                     size, "panels");
}

uint16_t load_u16(std::span<const std::byte> array, int64_t index) {
  uint16_t v;
  std::memcpy(&v, array.data() + index * 2, 2);
  return v;
}

// Word k of a stored row, changed by `permute`, goes to lane `row % 16` of vector k of its panel:
// for packed codes this is [unit][word], for 8 bits [quad].
template <typename Permute>
void pack_words(std::span<const std::byte> codes, int64_t words, PanelMatrix& w,
                const Permute& permute) {
  for (int64_t row = 0; row < w.rows; ++row) {
    const std::byte* in = codes.data() + row * words * 4;
    uint32_t* out = w.codes.data() + row / kPanelRows * words * kPanelRows + row % kPanelRows;
    for (int64_t k = 0; k < words; ++k) {
      uint32_t word;
      std::memcpy(&word, in + k * 4, 4);
      out[k * kPanelRows] = permute(word);
    }
  }
}

// [rows][groups] -> [panel][group][row 0..15]
template <typename Value>
AlignedArray<uint16_t> pack_groups(int64_t rows, int64_t groups, const Value& value) {
  const int64_t panels = ceil_div(rows, kPanelRows);
  AlignedArray<uint16_t> out(elements(panels, groups, kPanelRows));
  for (int64_t row = 0; row < rows; ++row) {
    uint16_t* p = out.data() + row / kPanelRows * groups * kPanelRows + row % kPanelRows;
    for (int64_t g = 0; g < groups; ++g)
      p[g * kPanelRows] = value(row, g);
  }
  return out;
}

// Refuses codes that are not of the kind that formats/format.h describes. Kernels double the
// multiplier of sums of bytes in 16 bits, and tables of levels have to be symmetric about zero.
void require_known_trellis(const TrellisCode& code) {
  bool known = code.state_bits <= kMostStateBits && detail::with_trellis_steps(code, [](auto) {});
  if (known && code.rule == TrellisRule::bytes) {
    const uint32_t half = code.multiplier & 0xffffu;
    known = code.multiplier >> 16 == half && half < 0x8000u;
  }
  for (int i = 0; known && code.rule == TrellisRule::quantiles && i < 64; ++i)
    known = code.table[i] == -code.table[127 - i];
  if (!known) throw Error(ErrorCode::usage, "trellis", "no kernel multiplies with this code");
}

PanelMatrix pack_trellis(const Tensor& tensor) {
  const TrellisCode& code = tensor.format->trellis;
  const PassArrays& arrays = tensor.pass[0];
  require_known_trellis(code);
  PanelMatrix w;
  w.trellis = &code;
  w.rows = tensor.rows;
  w.cols = ceil_div(tensor.cols, kUnitColumns) * kUnitColumns;
  w.group = kColumnBlock;
  const int64_t blocks = column_blocks(w.cols);
  const int64_t groups = code.block_scales ? blocks : 1;
  const uint64_t bytes =
      elements(w.panels(), w.cols / kTileCols, static_cast<uint64_t>(tile_bytes(code)));
  require_bytes(arrays.codes, bytes, "codes");
  require_bytes(arrays.scales, elements(w.rows, groups, 2), "scales");
  if (!code.block_scales) require_bytes(arrays.col_scales, elements(blocks, 2, 1), "col_scales");

  constexpr uint64_t kSlack = 64;
  w.codes = AlignedArray<uint32_t>((bytes + kSlack) / 4);
  std::memcpy(w.codes.data(), arrays.codes.data(), bytes);
  w.scales = AlignedArray<uint16_t>(elements(w.panels(), groups, kPanelRows));
  for (int64_t row = 0; row < w.rows; ++row) {
    const int lane = detail::trellis_lane(static_cast<int>(row % kPanelRows));
    for (int64_t g = 0; g < groups; ++g) {
      w.scales.data()[(row / kPanelRows * groups + g) * kPanelRows + lane] =
          load_u16(arrays.scales, row * groups + g);
    }
  }
  if (code.block_scales) return w;
  w.col_factors = AlignedArray<float>(static_cast<size_t>(blocks));
  for (int64_t b = 0; b < blocks; ++b)
    w.col_factors.data()[b] = f16_to_f32(load_u16(arrays.col_scales, b));
  return w;
}

PanelMatrix pack_product(const Tensor& tensor) {
  const ProductCode& code = tensor.format->product;
  const PassArrays& arrays = tensor.pass[0];
  PanelMatrix w;
  w.product = &code;
  w.rows = tensor.rows;
  w.cols = ceil_div(tensor.cols, kUnitColumns) * kUnitColumns;
  w.group = code.group;
  const int64_t groups = product_groups(code, w.cols);
  const int64_t words = product_row_bytes(w.cols) / 4;
  require_bytes(arrays.codes, elements(w.rows, words, 4), "codes");
  require_bytes(arrays.scales, elements(w.rows, groups, 2), "scales");
  if (code.own_codebook) require_bytes(arrays.codebook, kCodebookBytes, "codebook");

  w.codes = AlignedArray<uint32_t>(elements(w.panels(), words, kPanelRows));
  pack_words(arrays.codes, words, w, [](uint32_t word) { return word; });
  w.scales = pack_groups(w.rows, groups, [&](int64_t row, int64_t g) {
    return load_u16(arrays.scales, row * groups + g);
  });
  const int8_t* codebook = product_codebook(tensor);
  w.codebook = AlignedArray<int8_t>(2 * kCodebookBytes);
  for (int p = 0; p < kProductEntries; ++p) {
    for (int i = 0; i < kProductValues; ++i) {
      const auto upper = static_cast<int8_t>(codebook[p * kProductValues + i] + code.residual);
      w.codebook.data()[p * kProductValues + i] = upper;
      w.codebook.data()[kCodebookBytes + i * kProductEntries + p] = upper;
    }
  }
  return w;
}

}  // namespace

PanelMatrix pack_panels(const Tensor& tensor, int pass) {
  if (tensor.format->kind == CodeKind::trellis) return pack_trellis(tensor);
  if (tensor.format->kind == CodeKind::product) return pack_product(tensor);
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
  const int64_t groups = ceil_div(w.cols, w.group);

  const int64_t words = w.cols * code.bits / 32;
  require_bytes(arrays.codes, elements(w.rows, words, 4), "codes");
  require_bytes(arrays.scales, elements(w.rows, stored_groups, 2), "scales");
  if (code.sub_group) require_bytes(arrays.sub_scales, elements(w.rows, groups, 2), "sub_scales");
  if (code.has_offset) require_bytes(arrays.offsets, elements(w.rows, stored_groups, 2), "offsets");

  w.codes = AlignedArray<uint32_t>(elements(w.panels(), words, kPanelRows));
  pack_words(arrays.codes, words, w,
             [&](uint32_t word) { return code.bits == 8 ? word : detail::permute_nibbles(word); });
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

ActivationsI8::ActivationsI8(int64_t max_m, int64_t columns, int group_size, int plane_count)
    : cols(columns), group(group_size), planes(plane_count) {
  const uint64_t vectors = elements(max_m, planes, 1);
  q = AlignedArray<int8_t>(checked_mul(vectors, static_cast<uint64_t>(cols), "activations"));
  scales =
      AlignedArray<float>(checked_mul(vectors, static_cast<uint64_t>(groups()), "activations"));
  sums = AlignedArray<int32_t>(
      checked_mul(vectors, static_cast<uint64_t>(cols / kUnitColumns), "activations"));
}

}  // namespace walsh
