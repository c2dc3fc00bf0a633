#include "kernels/unpack.h"

#include <cassert>
#include <cstring>

#include "kernels/panel_layout.h"

namespace walsh {
namespace {

uint32_t restore_nibbles(uint32_t word) {
  uint32_t result = 0;
  for (int p = 0; p < 8; ++p)
    result |= (word >> detail::nibble_shift(p) & 0xfu) << (4 * p);
  return result;
}

}  // namespace

void unpack_codes(const PanelMatrix& w, std::span<std::byte> codes) {
  if (w.trellis != nullptr) {  // stored unchanged, followed by slack
    assert(codes.size() <= w.codes.size() * 4);
    std::memcpy(codes.data(), w.codes.data(), codes.size());
    return;
  }
  const int64_t words = static_cast<int64_t>(codes.size()) / 4 / w.rows;
  const bool permuted = w.code != nullptr && w.code->bits != 8;
  for (int64_t row = 0; row < w.rows; ++row) {
    const uint32_t* in = w.codes.data() + row / kPanelRows * words * kPanelRows + row % kPanelRows;
    std::byte* out = codes.data() + row * words * 4;
    for (int64_t k = 0; k < words; ++k) {
      const uint32_t word = in[k * kPanelRows];
      const uint32_t stored = permuted ? restore_nibbles(word) : word;
      std::memcpy(out + 4 * k, &stored, 4);
    }
  }
}

}  // namespace walsh
