// Computes indices for delta net kernels, on the device and the host.
#pragma once

#include <cstdint>

#include "arch/delta_net_shape.h"

namespace walsh::cuda {

inline constexpr int kDeltaRows = 32;     // A chunk has this many rows.
inline constexpr int kDeltaColumns = 32;  // A block has this many columns of a state.
inline constexpr int kMostTaps = 16;
inline constexpr int kMostDeltaDim = 256;  // No head is larger.

// Returns the numbers of a slot's ring of rows (kept_place()).
constexpr int64_t kept_floats(int64_t channels, int64_t taps) {
  return channels * taps;
}

using DeltaDims = DeltaNetShape<int>;

// Returns how many rows before `row` in the batch belong to its sequence, at most `most`.
constexpr int rows_in_front(const int32_t* sequences, int64_t row, int most) {
  int count = 0;
  while (count < most && count < row && sequences[row - count - 1] == sequences[row])
    ++count;
  return count;
}

// Returns whether a row is the only one of its sequence in a batch of m rows.
constexpr bool is_single(const int32_t* sequences, int64_t row, int64_t m) {
  return rows_in_front(sequences, row, 1) == 0 &&
         (row + 1 == m || sequences[row + 1] != sequences[row]);
}

// Returns the entry of a slot's ring for a position. The ring has `taps` entries, one more than a
// step reads, so that writing the current row does not overwrite what other blocks still read.
constexpr int kept_place(int position, int taps) {
  return position % taps;
}

// Says where the convolution finds the row `back` rows before the current one.
struct TapSource {
  // If it is >= 0, the row is this many rows earlier in the batch.
  int back = -1;
  // If it is >= 0, the row is this entry of the ring. If both are negative, the row is before the
  // start and counts as zeros.
  int kept = -1;
};
constexpr TapSource tap_source(int back, int in_front, int position, int taps) {
  if (back <= in_front) return {back, -1};
  if (back > position) return {-1, -1};
  return {-1, kept_place(position - back, taps)};
}

// Names what a warp of the convolution works on: one head of queries, keys or values, or 32 decays
// and strengths.
struct ChannelGroup {
  enum class Kind : uint8_t { query, key, value, scalars };
  Kind kind = Kind::query;
  int first = 0;  // It is the first channel, or the first value head.
  int size = 0;
};
constexpr int channel_groups(const DeltaDims& d) {
  return 2 * d.key_heads + d.value_heads + (d.value_heads + 31) / 32;
}
constexpr ChannelGroup channel_group(const DeltaDims& d, int group) {
  using Kind = ChannelGroup::Kind;
  if (group < d.key_heads) return {Kind::query, d.query_of(group * d.group()), d.key_dim};
  group -= d.key_heads;
  if (group < d.key_heads) return {Kind::key, d.key_of(group * d.group()), d.key_dim};
  group -= d.key_heads;
  if (group < d.value_heads) return {Kind::value, d.value_of(group), d.value_dim};
  const int first = (group - d.value_heads) * 32, left = d.value_heads - first;
  return {Kind::scalars, first, left < 32 ? left : 32};
}

// Lays out the shared memory of delta_rows. Offsets are in floats.
struct ChunkLayout {
  // Rows of queries and keys have this stride, so that their 16-byte pieces lie in different banks.
  int stride;
  int state, keys, queries, seen, weights, updates, scalars, floats;
};
// Rows of `seen`, `weights` and `updates` have this stride.
inline constexpr int kChunkStride = kDeltaRows + 4;
constexpr ChunkLayout chunk_layout(int key_dim) {
  ChunkLayout l{};
  l.stride = key_dim + 4;
  l.state = 0;
  l.keys = l.state + key_dim * kDeltaColumns;
  l.queries = l.keys + kDeltaRows * l.stride;
  l.seen = l.queries + kDeltaRows * l.stride;
  l.weights = l.seen + kDeltaRows * kChunkStride;
  l.updates = l.weights + kDeltaRows * kChunkStride;
  l.scalars = l.updates + kDeltaRows * kChunkStride;
  l.floats = l.scalars + 3 * kDeltaRows;
  return l;
}

}  // namespace walsh::cuda
