// Defines how coded matrices lie in the memory of a CPU: as panels of 16 interleaved rows. The room
// of a kind of code says what a panel looks like inside (panels.h and panels.cpp there).
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "base/aligned.h"
#include "base/checked.h"
#include "codec/tensor.h"

namespace walsh {

struct Codec;

inline constexpr int kPanelRows = 16;  // A panel interleaves this many rows.

// Holds one pass of a coded tensor, repacked for the kernels: panels of 16 rows, so that a 32-bit
// lane of a vector is one row. Rows are padded to 16 with scale 0. The room of the code says what
// `codes` and `scales` are; one of the first three pointers is set.
struct PanelMatrix {
  const ScalarCode* code = nullptr;
  const TrellisCode* trellis = nullptr;
  const ProductCode* product = nullptr;
  const Codec* codec = nullptr;
  int64_t rows = 0;          // It is the number without padding.
  int64_t cols = 0;          // They are padded to a multiple of 32.
  int64_t group = 0;         // This many columns share a scale (all if a row has one).
  int64_t offset_group = 0;  // This many columns share an offset; 0: there are none.
  AlignedArray<uint32_t> codes;
  AlignedArray<uint16_t> scales;
  AlignedArray<uint16_t> offsets;
  // It has the shape [column block]; a trellis without block_scales uses it.
  AlignedArray<float> col_factors;
  // A product code uses it: [256][4] of entry + residual, then the same as [4][256].
  AlignedArray<int8_t> codebook;

  int64_t panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
  uint64_t bytes() const {
    return (codes.size() + col_factors.size()) * 4 + (scales.size() + offsets.size()) * 2 +
           codebook.size();
  }
};

// Repacks pass `pass` of a coded tensor. Throws bad_input if its arrays are too small.
PanelMatrix pack_panels(const Tensor& tensor, int pass);
// Converts panels back to the codes of the pass from which pack_panels made `w`, as files store
// them. `codes` has their size (pass_fields).
void unpack_codes(const PanelMatrix& w, std::span<std::byte> codes);

namespace detail {

inline constexpr int64_t kUnitColumns = 32;  // A unit of packed codes has this many columns.

// Returns how many 32-bit words the codes of one panel have.
constexpr int64_t panel_words(const PanelMatrix& w, int bits) {
  return w.cols / kUnitColumns * bits * kPanelRows;
}

// Returns how many units one panel has.
constexpr int64_t panel_units(const PanelMatrix& w) {
  return w.cols / kUnitColumns;
}

// A room's decoder for an instruction set has `decode(words, emit)`. It calls emit(Quad<n>,
// weights) for quads 0..7 of a unit in any order; a 32-bit lane of `weights` holds columns 4 n .. 4
// n + 3 of one row.
template <int Index>
using Quad = std::integral_constant<int, Index>;

}  // namespace detail

}  // namespace walsh
