#include "codec/trellis/panels.h"

#include <cassert>
#include <cstring>

#include "base/half.h"
#include "codec/pack_arrays.h"

namespace walsh::detail {
namespace {

// Refuses codes that are not of the kind that codec/format.h describes. Kernels double the
// multiplier of sums of bytes in 16 bits, and tables of levels have to be symmetric about zero.
void require_known_trellis(const TrellisCode& code) {
  bool known = code.state_bits <= kMostStateBits && with_trellis_steps(code, [](auto) {});
  if (known && code.rule == TrellisRule::bytes) {
    const uint32_t half = code.multiplier & 0xffffu;
    known = code.multiplier >> 16 == half && half < 0x8000u;
  }
  for (int i = 0; known && code.rule == TrellisRule::quantiles && i < 64; ++i)
    known = code.table[i] == -code.table[127 - i];
  if (!known) throw Error(ErrorCode::usage, "trellis", "no kernel multiplies with this code");
}

}  // namespace

PanelMatrix pack_trellis(const Tensor& tensor, int) {
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
    const int lane = trellis_lane(static_cast<int>(row % kPanelRows));
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

// Restores the stored codes: a panel has them unchanged, followed by slack.
void unpack_trellis(const PanelMatrix& w, std::span<std::byte> codes) {
  assert(codes.size() <= w.codes.size() * 4);
  std::memcpy(codes.data(), w.codes.data(), codes.size());
}

}  // namespace walsh::detail
