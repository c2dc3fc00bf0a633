// Takes the fp16 rows of a coded cache in the phase of attention (coded_attention.cuh). They are
// tiles of 16 positions of the ring, or the first positions of a sequence, and are processed like
// those of pages.
#pragma once

#include "kernels/cuda/persistent/attention.cuh"

namespace walsh::cuda {

// Describes 16 positions as fp16 rows, of which [low, high) are seen and in memory. In the last
// tile the newest position is row `high`.
struct RowTile {
  const uint16_t *keys, *values;
  int low, high;
  bool last;
};

template <int Dim>
class CodedRows : protected AttendPhase<Dim, false> {
 protected:
  using Pages = AttendPhase<Dim, false>;
  using Pages::a_;
  using Pages::AttendPhase;
  using Pages::kChunks;
  using Pages::kVectors;
  using Pages::kWords;
  using Pages::lane_;
  using Pages::word;

  // Loads a tile of rows, with zeros for positions that are not seen.
  __device__ __forceinline__ void load(typename Pages::Keys& to, const RowTile& tile) const {
    const auto* rows = reinterpret_cast<const uint4*>(tile.keys) + lane_ % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = lane_ / 4 + 8 * r;
#pragma unroll
      for (int c = 0; c < kChunks; ++c)
        to.row[r][c] = row >= tile.low && row < tile.high ? rows[row * (Dim / 8) + 4 * c] : uint4{};
    }
  }
  __device__ __forceinline__ void load(typename Pages::Values& to, const RowTile& tile) const {
    const auto* rows = reinterpret_cast<const uint4*>(tile.values) + lane_ / 4 * kVectors;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int row = this->value_row(r);
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
        to.row[r][v] = row >= tile.low && row < tile.high ? rows[row * (Dim / 8) + v] : uint4{};
    }
  }

  // Prefetches a tile of rows.
  __device__ __forceinline__ void expect(const RowTile& tile) const {
    constexpr int kEach = kCacheTile * Dim / 32;
    expect_line(tile.keys + lane_ * kEach);
    expect_line(tile.values + lane_ * kEach);
  }

  // Computes scores and softmax of a tile of rows and adds its values.
  __device__ __forceinline__ void attend_rows(const RowTile& tile, Running<Dim>& run,
                                              float shift) const {
    typename Pages::Keys keys;
    typename Pages::Values values;
    load(keys, tile);
    load(values, tile);
    if (tile.last) {
      this->add_newest(keys, 0);
      this->add_newest(values, 0);
    }
    const auto* q = reinterpret_cast<const uint4*>(this->query(lane_ / 4)) + lane_ % 4;
    float s[4] = {};
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const uint4 b = q[4 * c];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const uint4 &low = keys.row[0][c], &high = keys.row[1][c];
        const uint32_t a[4] = {word(low, 2 * j), word(high, 2 * j), word(low, 2 * j + 1),
                               word(high, 2 * j + 1)};
        mma_f16(s, a, word(b, 2 * j), word(b, 2 * j + 1));
      }
    }
    uint32_t b0, b1;
    weigh_tile<Dim, true>(s, tile.low, tile.last ? tile.high + 1 : tile.high, a_.rule.scale, lane_,
                          run, b0, b1, shift);
#pragma unroll
    for (int d = 0; d < kWords; ++d) {
      uint32_t w[4];
#pragma unroll
      for (int r = 0; r < 4; ++r)
        w[r] = word(values.row[r][d / 4], d % 4);
      const uint32_t a[4] = {__byte_perm(w[0], w[1], 0x5410), __byte_perm(w[0], w[1], 0x7632),
                             __byte_perm(w[2], w[3], 0x5410), __byte_perm(w[2], w[3], 0x7632)};
      mma_f16(run.sum[d], a, b0, b1);
    }
  }
};

}  // namespace walsh::cuda
