// Lays out the shared memory of a block that encodes a span of one row.
#pragma once

#include <cstddef>

#include "codec/scalar/cuda/encode_args.h"

namespace walsh::cuda::encoding {

// Says how the elements of a group are assigned and decoded. v = x * factor - shift is compared
// with thresholds times `assigned` (absmax: multiplied by 1 / scale). The decoded value is scale *
// level + offset.
struct GroupFit {
  float factor, shift;
  float assigned;
  float scale, offset;
  bool zero;  // If true, the scale is 0.
};

constexpr int threads_of(GroupKind kind) {
  return kind == GroupKind::offset || kind == GroupKind::sub_groups ? 64 : 128;
}

// Returns the number of columns that share a GroupFit.
constexpr int fit_columns(GroupKind kind, int span) {
  switch (kind) {
    case GroupKind::plain:
      return 128;
    case GroupKind::offset:
      return 256;
    case GroupKind::row:
      return span;
    default:
      return 32;
  }
}

// Holds offsets in bytes. `doubles` is for the differences of groups with an offset, and for the
// trials of a row.
struct SpanLayout {
  size_t values, fits, doubles, codes, bytes;
};

constexpr SpanLayout span_layout(GroupKind kind, int span) {
  const auto columns = static_cast<size_t>(span);
  SpanLayout layout{};
  layout.values = 0;
  layout.doubles = columns * sizeof(float);
  const size_t doubles = kind == GroupKind::offset ? columns : kind == GroupKind::row ? 32 : 0;
  layout.fits = layout.doubles + doubles * sizeof(double);
  const size_t fits = columns / static_cast<size_t>(fit_columns(kind, span)) * sizeof(GroupFit);
  layout.codes = (layout.fits + fits + 15) / 16 * 16;
  layout.bytes = layout.codes + columns;
  return layout;
}

}  // namespace walsh::cuda::encoding
