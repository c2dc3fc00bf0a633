// Defines panels of trellis codes: codes[panel][tile of 16 columns] as stored, where a row of tiles
// is a panel. 64 bytes follow that may be read but mean nothing. Lane 2g + h of a vector is row g +
// 8h, the order of two quads in a window of the bit stream; scales are fp16 [panel][lane], or
// [panel][column block][lane] with block_scales. A group is a column block.
#pragma once

#include "codec/panels.h"
#include "codec/trellis/trellis.h"

namespace walsh::detail {

// These give the lane of a panel's row in a trellis, and the inverse.
constexpr int trellis_lane(int row) {
  return 2 * (row % 8) + row / 8;
}
constexpr int trellis_row(int lane) {
  return lane / 2 + 8 * (lane % 2);
}

// Describes a trellis's step, for which kernels are compiled: bits per step of two weights, and the
// rule that makes levels.
template <int Bits, TrellisRule Rule>
struct TrellisSteps {
  static constexpr TrellisRule kRule = Rule;
  static constexpr int kBits = Bits;
  // A unit, which is two tiles, has this many words.
  static constexpr int kUnitWords = kTileWeights * Bits / 32;
};

// Calls body(Steps{}) with the one of the types `Steps` that matches the code. Returns false if
// none does.
template <typename... Steps, typename Body>
bool with_steps_among(const TrellisCode& code, const Body& body) {
  const auto offer = [&](auto steps) {
    if (code.rule != steps.kRule || code.values != 2 || code.step_bits != steps.kBits) return false;
    body(steps);
    return true;
  };
  return (offer(Steps{}) || ...);
}

// Calls body(Steps{}) with the steps of a code. Returns false if kernels do not support it.
template <typename Body>
bool with_trellis_steps(const TrellisCode& code, const Body& body) {
  constexpr auto kBytes = TrellisRule::bytes, kQuantiles = TrellisRule::quantiles;
  return with_steps_among<TrellisSteps<4, kBytes>, TrellisSteps<5, kBytes>, TrellisSteps<6, kBytes>,
                          TrellisSteps<7, kBytes>, TrellisSteps<8, kBytes>,
                          TrellisSteps<4, kQuantiles>, TrellisSteps<5, kQuantiles>,
                          TrellisSteps<6, kQuantiles>, TrellisSteps<7, kQuantiles>,
                          TrellisSteps<8, kQuantiles>>(code, body);
}

inline const std::byte* trellis_tile(const PanelMatrix& w, int64_t panel, int64_t col) {
  const int64_t tile = panel * (w.cols / kTileCols) + col / kTileCols;
  return reinterpret_cast<const std::byte*>(w.codes.data()) + tile * tile_bytes(*w.trellis);
}

PanelMatrix pack_trellis(const Tensor& tensor, int pass);
void unpack_trellis(const PanelMatrix& w, std::span<std::byte> codes);

}  // namespace walsh::detail
