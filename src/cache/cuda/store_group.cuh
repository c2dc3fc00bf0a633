// Encodes rows of a tile to codes and scales, as encode_cache_rows (cache/encode.h) does. A team of
// half a warp works on a row.
#pragma once

#include "base/half.h"
#include "cache/cuda/coded_cache.h"
#include "codec/scalar/cuda/device_team.cuh"

namespace walsh::cuda {

inline constexpr int kStoreThreads = 128;

// Lies in shared memory. Rows have strides such that the teams of a warp, and the lanes that pack,
// use different banks.
template <int Dim>
struct TileMemory {
  static constexpr int kRow = Dim + encoding::kLanes, kCodeRow = Dim + 8;
  alignas(16) float values[kCacheTile * kRow];
  alignas(16) uint8_t codes[kCacheTile * kCodeRow];
  float offsets[Dim];
};

// Returns the position of a row's and group's scale among the tile's scales (coded_tile.cuh).
__device__ __forceinline__ int scale_place(bool key, int groups, int row, int group) {
  if (key) return (row % 8 * groups + group) * 2 + row / 8;
  return (row % 8 / 2 * groups + group) * 4 + row / 8 * 2 + row % 2;
}

// Returns arguments for the encoder of weights, whose search does not depend on the cache.
__device__ __forceinline__ encoding::PassArgs pass_args(const CodedSide& side) {
  encoding::PassArgs args;
  args.bits = side.bits;
  args.levels = side.code.levels;
  args.rule.start = side.code.start;
  args.rule.factors[0] = 1;
  args.rule.all_starts = args.rule.shape_gain = args.rule.sigma = false;
  return args;
}

// Returns the scale of one group, and in `factor` what its values are multiplied by before codes
// are chosen.
template <int Columns, encoding::GroupKind Kind, int Thresholds>
__device__ __forceinline__ uint16_t find_fit(const encoding::DeviceTeam& team,
                                             const encoding::PassArgs& args, const float* x,
                                             encoding::GroupFit& fit) {
  using namespace encoding;
  bool finite;
  const float largest = largest_of(team, x, Columns / kLanes, finite);
  fit = {};
  if constexpr (Kind == GroupKind::absmax) {
    return absmax_scale(team, args.bits, x, largest, fit.assigned);
  } else {
    using Values = RegisterValues<DeviceTeam, Columns / kLanes, true>;
    const int exponent = group_exponent(largest);
    fit.factor = power_of_two(-exponent);
    Values values;
    values.load(team, x, fit.factor, 0);
    const GroupSearch<DeviceTeam, Thresholds, Values> search(team, args.levels, args.rule, values,
                                                             Columns, exponent, kLargestHalf);
    const GroupScale scale = search.find();
    fit.assigned = scale.assigned;
    fit.zero = scale.half == 0;
    return scale.half;
  }
}

// Encodes memory.values. A row with a value that is not finite becomes zeros with NaN scales.
template <int Dim, int Columns, encoding::GroupKind Kind, int Thresholds>
__device__ __forceinline__ void encode_tile(const encoding::PassArgs& args, bool key,
                                            TileMemory<Dim>& memory, uint16_t* scales) {
  using namespace encoding;
  constexpr int kGroups = Dim / Columns;
  const DeviceTeam team;
  const uint32_t flipped = args.bits == 8 ? 0x80 : 0;  // An 8-bit code is stored as level + 128.
  WALSH_NO_UNROLL
  for (int row = DeviceBlock::team_index(); row < kCacheTile; row += kStoreThreads / kLanes) {
    float* x = memory.values + row * TileMemory<Dim>::kRow;
    uint8_t* codes = memory.codes + row * TileMemory<Dim>::kCodeRow;
    bool finite;
    largest_of(team, x, Dim / kLanes, finite);
    for (int i = 0; i < Dim / kLanes && !finite; ++i)
      team.store(x + kLanes * i, 0);
    WALSH_NO_UNROLL
    for (int group = 0; group < kGroups; ++group, x += Columns, codes += Columns) {
      GroupFit fit;
      const uint16_t scale = find_fit<Columns, Kind, Thresholds>(team, args, x, fit);
      WALSH_UNROLL
      for (int i = 0; i < Columns / kLanes; ++i) {
        float decoded;
        const uint32_t code =
            assign<Kind, Thresholds>(args, fit, team.load(x + kLanes * i), decoded);
        codes[kLanes * i + DeviceTeam::index()] = static_cast<uint8_t>(code ^ flipped);
      }
      if (team.leads()) scales[scale_place(key, kGroups, row, group)] = finite ? scale : kHalfNan;
    }
  }
}

template <int Dim, int Columns>
__device__ __forceinline__ void encode_searched(const CodedSide& side, bool key,
                                                TileMemory<Dim>& memory, uint16_t* scales) {
  const encoding::PassArgs args = pass_args(side);
  constexpr auto kKind = encoding::GroupKind::plain;
  switch (side.code.thresholds) {
    case 1:
      return encode_tile<Dim, Columns, kKind, 1>(args, key, memory, scales);
    case 3:
      return encode_tile<Dim, Columns, kKind, 3>(args, key, memory, scales);
    default:
      return encode_tile<Dim, Columns, kKind, encoding::kMaxThresholds>(args, key, memory, scales);
  }
}

// Replaces memory.codes by the stored codes of memory.values.
template <int Dim>
__device__ __forceinline__ void encode_tile(const CodedSide& side, bool key,
                                            TileMemory<Dim>& memory, uint16_t* scales) {
  if (side.code.absmax) {
    encode_tile<Dim, encoding::kUnit, encoding::GroupKind::absmax, 1>(pass_args(side), key, memory,
                                                                      scales);
  } else if (side.groups == 1) {
    encode_searched<Dim, Dim>(side, key, memory, scales);
  } else {
    encode_searched<Dim, encoding::kUnit>(side, key, memory, scales);
  }
}

// Packs memory.codes in the order of coded_tile.cuh. Four nibble words of a lane are the 32 codes
// that pack_unit takes.
template <int Dim>
__device__ __forceinline__ void pack_tile(int bits, bool key, const TileMemory<Dim>& memory,
                                          uint32_t* words) {
  constexpr int kCodeRow = TileMemory<Dim>::kCodeRow;
  for (int i = static_cast<int>(threadIdx.x); i < Dim / 64 * 32; i += kStoreThreads) {
    const int quad = i / 32, lane = i % 32, g = lane / 4, t = lane % 4;
    uint32_t bytes[8], packed[8];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int columns = 64 * quad + 32 * (j / 2), r = j % 2;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (key) {
          const uint8_t* from = memory.codes + (g + 8 * r) * kCodeRow + columns + 16 * h + 2 * t;
          const uint32_t low = *reinterpret_cast<const uint16_t*>(from);
          bytes[2 * j + h] = low | uint32_t{*reinterpret_cast<const uint16_t*>(from + 8)} << 16;
        } else {
          const uint8_t* from = memory.codes + 2 * t * kCodeRow + columns + 16 * r + 8 * h + g;
          bytes[2 * j + h] = from[0] | uint32_t{from[kCodeRow]} << 8 |
                             uint32_t{from[8 * kCodeRow]} << 16 |
                             uint32_t{from[9 * kCodeRow]} << 24;
        }
      }
    }
    encoding::pack_unit(bits, bytes, packed);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      if (k < bits) words[(quad * bits + k) * 32 + lane] = packed[k];
    }
  }
}

}  // namespace walsh::cuda
