// Reads a span of a source row and rotates it, with the operations of rotate/ in the same order:
// factors, then the butterflies of distance 1, 2, 4, ... The code compiles for the device and the
// host (lane_math.h).
//
// For distances 1 to 4 a thread holds eight neighbouring columns; for 8 to 64 a team holds 128
// columns; for 128 to 512 a thread holds eight columns that are 128 apart.
#pragma once

#include "codec/scalar/cuda/find_scales.h"

namespace walsh::cuda::encoding {

inline constexpr int kEight = 8;  // A thread has this many columns.
inline constexpr uint32_t kInfinityBits = 0x7f800000;
inline constexpr int kWide = 128;  // A team has this many columns.

struct alignas(16) EightHalves {
  uint16_t v[kEight];
};
struct alignas(16) EightFloats {
  float v[kEight];
};

// Reads eight balanced values of a row in the original basis, and zeros from column `cols` on.
template <class Block>
WALSH_LANE void read_eight(const Source& source, int64_t row, int64_t column,
                           float (&out)[kEight]) {
  const int64_t at = row * source.cols + column;
  const bool whole = source.aligned && column + kEight <= source.cols;
  if (source.type == SourceType::f32) {
    const auto* values = static_cast<const float*>(source.values) + at;
    if (whole) {
      const EightFloats in = *reinterpret_cast<const EightFloats*>(values);
      WALSH_UNROLL
      for (int k = 0; k < kEight; ++k)
        out[k] = in.v[k];
    } else {
      WALSH_UNROLL
      for (int k = 0; k < kEight; ++k)
        out[k] = column + k < source.cols ? values[k] : 0;
    }
  } else {
    const auto* values = static_cast<const uint16_t*>(source.values) + at;
    EightHalves in{};
    if (whole) {
      in = *reinterpret_cast<const EightHalves*>(values);
    } else {
      WALSH_UNROLL
      for (int k = 0; k < kEight; ++k)
        in.v[k] = column + k < source.cols ? values[k] : uint16_t{0};
    }
    WALSH_UNROLL
    for (int k = 0; k < kEight; ++k)
      out[k] = source.type == SourceType::f16 ? Block::Team::from_half(in.v[k])
                                              : Block::Team::from_bfloat(in.v[k]);
  }
  if (source.column_scales == nullptr || column >= source.cols) return;
  const EightFloats scales = *reinterpret_cast<const EightFloats*>(source.column_scales + column);
  WALSH_UNROLL
  for (int k = 0; k < kEight; ++k)
    out[k] = out[k] * (column + k < source.cols ? scales.v[k] : 0);
}

// Returns the sum of squares, and refuses values that are not finite.
template <class Block>
WALSH_LANE double check_eight(const Source& source, const Refusals& refusals, int64_t row,
                              int64_t column, const float (&v)[kEight]) {
  double norm = 0;
  uint32_t exponent = 0;
  WALSH_UNROLL
  for (int k = 0; k < kEight; ++k) {
    const uint32_t bits = std::bit_cast<uint32_t>(v[k]) & kInfinityBits;
    exponent = bits > exponent ? bits : exponent;
    norm = fma(static_cast<double>(v[k]), static_cast<double>(v[k]), norm);
  }
  if (exponent == kInfinityBits) {
    int first = 0;
    WALSH_UNROLL
    for (int k = kEight - 1; k >= 0; --k) {
      if ((std::bit_cast<uint32_t>(v[k]) & kInfinityBits) == kInfinityBits) first = k;
    }
    refuse<Block>(refusals, kNotFinite, row, source.cols, column + first);
  }
  return norm;
}

// Computes the butterfly of distance kDistance in an array of lanes or columns.
template <int kDistance, class T>
WALSH_LANE void butterfly(T (&v)[8]) {
  WALSH_UNROLL
  for (int i = 0; i < 8; ++i) {
    if ((i & kDistance) != 0) continue;
    const T a = v[i], b = v[i + kDistance];
    v[i] = a + b;
    v[i + kDistance] = a - b;
  }
}

// Computes the butterflies of distance 1 to 4.
WALSH_LANE void transform_eight(float (&v)[kEight]) {
  butterfly<1>(v);
  butterfly<2>(v);
  butterfly<4>(v);
}

WALSH_LANE void store_eight(float* to, const float (&v)[kEight]) {
  EightFloats out;
  WALSH_UNROLL
  for (int k = 0; k < kEight; ++k)
    out.v[k] = v[k];
  *reinterpret_cast<EightFloats*>(to) = out;
}

// Computes the butterfly of distance 2 between units of 32 columns where a segment is long enough
// for it; two[p] says so for each pair of units.
template <class T>
WALSH_LANE void butterfly_units(T (&v)[8], const bool (&two)[2]) {
  WALSH_UNROLL
  for (int pair = 0; pair < 2; ++pair) {
    if (!two[pair]) continue;
    WALSH_UNROLL
    for (int i = 4 * pair; i < 4 * pair + 2; ++i) {
      const T a = v[i], b = v[i + 2];
      v[i] = a + b;
      v[i + 2] = a - b;
    }
  }
}

// Returns the size of the segment that contains column c (rotation_segments); 32 after the row.
WALSH_LANE int segment_size(int64_t c, const PassArgs& args) {
  if (c < args.whole_blocks) return args.block;
  const auto rest = static_cast<int>(args.padded - args.whole_blocks);
  auto at = static_cast<int>(c - args.whole_blocks);
  for (int size = args.block / 2; size > kUnit; size /= 2) {
    if ((rest & size) == 0) continue;
    if (at < size) return size;
    at -= size;
  }
  return kUnit;
}

// Transforms the segments of the span over distances 8 to 512.
template <class Block>
WALSH_LANE void transform_wide(const Block& block, const PassArgs& args, const SpanPlace& place) {
  using Team = typename Block::Team;
  const Team& team = block.team();
  for (int first = block.team_index() * kWide; first < args.span; first += block.teams() * kWide) {
    float* x = place.values + first;
    const int64_t column = place.begin + first;
    typename Team::Float v[8];
    WALSH_UNROLL
    for (int i = 0; i < 8; ++i)
      v[i] = Team::butterfly8(team.load(x + kLanes * i));
    butterfly<1>(v);
    const int size = segment_size(column, args);
    const bool two[2] = {size > kUnit, segment_size(column + 64, args) > kUnit};
    butterfly_units(v, two);
    if (size > 64) butterfly<4>(v);
    WALSH_UNROLL
    for (int i = 0; i < 8; ++i)
      team.store(x + kLanes * i, v[i]);
  }
  block.sync();
  if (args.block <= kWide) return;
  for (int c = block.thread(); c < args.span / 8; c += block.threads()) {
    const int first = c / kWide * kSpan + c % kWide;
    int size[8];
    float v[8];
    WALSH_UNROLL
    for (int i = 0; i < 8; ++i) {
      size[i] = segment_size(place.begin + first + kWide * i, args);
      v[i] = place.values[first + kWide * i];
    }
    WALSH_UNROLL
    for (int h = 1; h < 8; h *= 2) {
      WALSH_UNROLL
      for (int i = 0; i < 8; ++i) {
        if ((i & h) != 0 || size[i] <= kWide * h) continue;
        const float a = v[i], b = v[i + h];
        v[i] = a + b;
        v[i + h] = a - b;
      }
    }
    WALSH_UNROLL
    for (int i = 0; i < 8; ++i)
      place.values[first + kWide * i] = v[i];
  }
  block.sync();
}

// Sets place.values to the rotated span. Returns this thread's share of the sum of squares of the
// source.
template <class Block>
WALSH_LANE double load_span(const Block& block, const PassArgs& args, const SpanPlace& place) {
  double norm = 0;
  for (int c = kEight * block.thread(); c < args.span; c += kEight * block.threads()) {
    const int64_t column = place.begin + c;
    float v[kEight] = {};
    if (c < place.columns) {
      read_eight<Block>(args.source, place.row, column, v);
      // Norms are of the tensor itself, not of the residual of a pass.
      if (args.norms != nullptr) {
        norm += check_eight<Block>(args.source, args.refusals, place.row, column, v);
      }
      if (args.block != 0) {
        const EightFloats factors = *reinterpret_cast<const EightFloats*>(args.factors + column);
        WALSH_UNROLL
        for (int k = 0; k < kEight; ++k)
          v[k] *= factors.v[k];
        transform_eight(v);
      }
    }
    store_eight(place.values + c, v);
  }
  block.sync();
  if (args.block != 0) transform_wide(block, args, place);
  return norm;
}

WALSH_LANE void write_eight(const PassArgs& args, int64_t row, int64_t column,
                            const EightFloats& v) {
  float* out = args.residual + row * args.source.cols + column;
  if (args.source.aligned && column + kEight <= args.source.cols) {
    *reinterpret_cast<EightFloats*>(out) = v;
    return;
  }
  for (int k = 0; k < kEight && column + k < args.source.cols; ++k)
    out[k] = v.v[k];
}

// Subtracts the decoded span from the source after rotating it back; its distances 1 to 4 are
// transformed already. Returns this thread's share of the squared error.
template <class Block>
WALSH_LANE double finish_span(const Block& block, const PassArgs& args, const SpanPlace& place) {
  if (args.block != 0) transform_wide(block, args, place);
  double error = 0;
  for (int c = kEight * block.thread(); c < place.columns; c += kEight * block.threads()) {
    const int64_t column = place.begin + c;
    float x[kEight];
    read_eight<Block>(args.source, place.row, column, x);
    const EightFloats v = *reinterpret_cast<const EightFloats*>(place.values + c);
    EightFloats factors{};
    if (args.block != 0) factors = *reinterpret_cast<const EightFloats*>(args.factors + column);
    EightFloats left{};
    WALSH_UNROLL
    for (int k = 0; k < kEight; ++k) {
      if (column + k >= args.source.cols) continue;
      left.v[k] = x[k] - (args.block != 0 ? v.v[k] * factors.v[k] : v.v[k]);
      error = fma(static_cast<double>(left.v[k]), static_cast<double>(left.v[k]), error);
    }
    if (args.residual != nullptr) write_eight(args, place.row, column, left);
  }
  return error;
}

}  // namespace walsh::cuda::encoding
