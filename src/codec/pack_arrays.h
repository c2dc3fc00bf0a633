// Repacks stored rows into panels, in the ways that several rooms share.
#pragma once

#include <cstring>
#include <span>
#include <string>

#include "base/checked.h"
#include "codec/panels.h"
#include "walsh/error.h"

namespace walsh::detail {

inline void require_bytes(std::span<const std::byte> array, uint64_t needed, const char* name) {
  if (array.size() >= needed) return;
  throw Error(ErrorCode::bad_input, std::string("array '") + name + "'",
              "has " + std::to_string(array.size()) + " bytes, expected " + std::to_string(needed));
}

inline uint64_t elements(int64_t a, int64_t b, uint64_t size) {
  return checked_mul(checked_mul(static_cast<uint64_t>(a), static_cast<uint64_t>(b), "panels"),
                     size, "panels");
}

inline uint16_t load_u16(std::span<const std::byte> array, int64_t index) {
  uint16_t v;
  std::memcpy(&v, array.data() + index * 2, 2);
  return v;
}

// Moves word k of a stored row, changed by `permute`, to lane `row % 16` of vector k of its panel.
// For packed codes a vector is [unit][word], for 8 bits [quad].
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

// Reverses pack_words, into the rows of `codes`.
template <typename Restore>
void unpack_words(const PanelMatrix& w, std::span<std::byte> codes, const Restore& restore) {
  const int64_t words = static_cast<int64_t>(codes.size()) / 4 / w.rows;
  for (int64_t row = 0; row < w.rows; ++row) {
    const uint32_t* in = w.codes.data() + row / kPanelRows * words * kPanelRows + row % kPanelRows;
    std::byte* out = codes.data() + row * words * 4;
    for (int64_t k = 0; k < words; ++k) {
      const uint32_t stored = restore(in[k * kPanelRows]);
      std::memcpy(out + 4 * k, &stored, 4);
    }
  }
}

// Reorders [rows][groups] to [panel][group][row 0..15].
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

}  // namespace walsh::detail
