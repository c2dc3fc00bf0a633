// Finds the scales, offsets and sub-scales of the groups of a span, like RowEncoder
// (codec/scalar/encoder.cpp). There is one function per GroupKind. The code compiles for the device
// and the host (lane_math.h).
//
// Block is the set of threads that works on the span. team() is the caller's team, and team_index()
// is its number among teams(); sync() waits for all.
#pragma once

#include "codec/scalar/cuda/group_search.h"
#include "codec/scalar/cuda/span_memory.h"

namespace walsh::cuda::encoding {

inline constexpr int kSubGroups = 8;  // A group has this many sub-groups of 32 columns.

// Says where a span is.
struct SpanPlace {
  int64_t row;
  int64_t begin;  // The span begins at this column.
  int columns;    // This many columns of the padded row are in this span.
  // It has the shape [span] and holds rotated values, with zeros after `columns`.
  float* values;
  double* doubles;
  GroupFit* fits;
};

WALSH_LANE int group_length(const SpanPlace& place, int first, int columns) {
  const int left = place.columns - first;
  return left < 0 ? 0 : left < columns ? left : columns;
}

// Records a refused value, unless an earlier one is recorded.
template <class Block>
WALSH_LANE void refuse(const Refusals& refusals, int stage, int64_t row, int64_t cols,
                       int64_t column) {
  const int64_t tensor_row = refusals.first_row + row;
  Block::keep_least(refusals.first,
                    static_cast<uint64_t>((tensor_row * 4 + stage) * cols + column));
}

// Returns the largest magnitude of `chunks` chunks, and whether all values are finite.
template <class Team>
WALSH_LANE float largest_of(const Team& team, const float* x, int chunks, bool& finite) {
  typename Team::Float largest{}, zeros{};
  for (int i = 0; i < chunks; ++i) {
    const typename Team::Float v = team.load(x + kLanes * i);
    const auto magnitude = Team::map(v, [](float lane) { return magnitude_of(lane); });
    largest = Team::select(magnitude > largest, magnitude, largest);
    zeros += v * Team::broadcast(0);  // If v is not finite, this is NaN from here on.
  }
  finite = team.sum(zeros) == 0;
  return team.max(largest);
}

// Returns the largest magnitude, and refuses a value that is not finite.
template <class Block>
WALSH_LANE float largest_of(const typename Block::Team& team, const PassArgs& args, int64_t row,
                            const float* x, int chunks) {
  bool finite;
  const float largest = largest_of(team, x, chunks, finite);
  if (!finite && team.leads()) {
    refuse<Block>(args.refusals, args.stage, row, args.source.cols, 0);
  }
  return largest;
}

// Returns the mean of the n elements in `chunks` chunks, as fp16.
template <class Team>
WALSH_LANE uint16_t mean_offset(const Team& team, const float* x, int chunks, int n, int exponent) {
  typename Team::Float sum{};
  for (int i = 0; i < chunks; ++i)
    sum += team.load(x + kLanes * i) * power_of_two(-exponent);
  const float mean = team.sum(sum) / static_cast<float>(n);
  return saturated_half<Team>(scaled(mean, exponent), kLargestHalf);
}

// Corrects the offset by the mean of the remaining differences, and refits the scale to it. Returns
// true if that is better. `left` is summed in double, in the order of the elements.
template <class Block, int kThresholds, class Values>
WALSH_LANE bool refine_offset(const typename Block::Team& team, const PassArgs& args,
                              const GroupSearch<typename Block::Team, kThresholds, Values>& search,
                              const float* x, double* differences, int n, int exponent, bool wanted,
                              GroupScale& scale, uint16_t& offset) {
  using Team = typename Block::Team;
  search.differences(scale, [&](int i, typename Team::Float difference) {
    team.store(differences + kLanes * i, difference);
  });
  team.sync();
  double left = 0;
  for (int i = 0; i < n; ++i)
    left += differences[i];
  const double mean = left / static_cast<double>(n) * double_power_of_two(exponent);
  const double corrected = static_cast<double>(Team::from_half(offset)) + mean;
  const uint16_t half = saturated_half<Team>(static_cast<float>(corrected), kLargestHalf);

  const float factor = power_of_two(-exponent);
  Values values;
  values.chunks = n / kLanes;
  values.load(team, x, factor, Team::from_half(half) * factor);
  const GroupSearch<Team, kThresholds, Values> again(team, args.levels, args.rule, values, n,
                                                     exponent, kLargestHalf);
  GroupScale refitted = again.stored(again.refit(scale.decoded, wanted));
  refitted.error = again.error(refitted);
  if (!wanted || !(refitted.error < scale.error) || refitted.half == 0) return false;
  scale = refitted;
  offset = half;
  return true;
}

template <class Block, int N, int kThresholds, bool kAll>
WALSH_LANE void find_group(const Block& block, const PassArgs& args, const SpanPlace& place,
                           int group, int n) {
  using Team = typename Block::Team;
  using Values = RegisterValues<Team, N, kAll>;
  constexpr bool kOffset = N == 16;
  const Team& team = block.team();
  const float* x = place.values + group * N * kLanes;
  const int chunks = kAll ? N : n / kLanes;
  const int exponent = group_exponent(largest_of<Block>(team, args, place.row, x, chunks));
  const float factor = power_of_two(-exponent);
  Values values;
  values.chunks = chunks;
  uint16_t offset = 0;
  if (kOffset && !args.rule.sigma) offset = mean_offset(team, x, chunks, n, exponent);
  values.load(team, x, factor, Team::from_half(offset) * factor);
  const GroupSearch<Team, kThresholds, Values> search(team, args.levels, args.rule, values, n,
                                                      exponent, kLargestHalf);
  GroupScale scale = search.find();
  if constexpr (kOffset) {
    const bool refine = args.rule.all_starts && scale.half != 0;
    if (team.any(refine)) {
      refine_offset<Block, kThresholds, Values>(team, args, search, x,
                                                place.doubles + group * N * kLanes, n, exponent,
                                                refine, scale, offset);
    }
  }
  if (!team.leads() || n == 0) return;
  const float z = Team::from_half(offset);
  place.fits[group] = {factor, z * factor,     scale.assigned, Team::from_half(scale.half),
                       z,      scale.half == 0};
  const int64_t index = place.row * args.groups + place.begin / (N * kLanes) + group;
  args.scales[index] = scale.half;
  if (kOffset) args.offsets[index] = offset;
}

// Finds the scales of plain groups, or of groups with an offset. N is the number of chunks per
// group, 8 without an offset and 16 with one.
template <class Block, int N, int kThresholds>
WALSH_LANE void find_groups(const Block& block, const PassArgs& args, const SpanPlace& place) {
  constexpr int kColumns = N * kLanes;
  for (int group = block.team_index(); group < args.span / kColumns; group += block.teams()) {
    const int n = group_length(place, group * kColumns, kColumns);
    // A test for n == kColumns would be clearer, but ptxas 13.0 concludes from the clamp of n that
    // it is never true (seen on sm_90a).
    if (block.team().all((group + 1) * kColumns <= place.columns)) {
      find_group<Block, N, kThresholds, true>(block, args, place, group, n);
    } else {
      find_group<Block, N, kThresholds, false>(block, args, place, group, n);
    }
  }
}

// Returns round(log2(s)) for the root s of a mean square.
WALSH_LANE int nearest_power(const SearchRule& rule, float mean_square) {
  const uint32_t bits = std::bit_cast<uint32_t>(sqrtf(mean_square));
  const int e = static_cast<int>(bits >> 23) - 127;
  const int index = e - kLeastPower;
  if (index < 0 || index >= kPowers) return e;  // Finite values do not get here.
  return e + ((bits & 0x7fffffu) >= rule.power_mantissa[index] ? 1 : 0);
}

// Returns the largest mean square among the first `subs` sub-groups of 32 columns.
template <class Team>
WALSH_LANE float largest_square(const Team& team, const float* x, int subs, float factor,
                                float shift) {
  float largest = 0;
  WALSH_UNROLL
  for (int s = 0; s < kSubGroups; ++s) {
    typename Team::Float squares{};
    for (int i = 2 * s; i < 2 * s + 2; ++i) {
      const typename Team::Float v = team.load(x + kLanes * i) * factor - shift;
      squares += v * v;
    }
    const float square = team.sum(squares) / static_cast<float>(kUnit);
    if (s < subs && square > largest) largest = square;
  }
  return largest;
}

// Finds the scales of groups of 256 columns with an offset and a scale d, a power of two, times a
// sub-scale per 32 columns. Columns after the row are zeros and change no maximum.
template <class Block, int kThresholds>
WALSH_LANE void find_sub_group_scales(const Block& block, const PassArgs& args,
                                      const SpanPlace& place, int group) {
  using Team = typename Block::Team;
  using Values = RegisterValues<Team, 2, true>;
  constexpr int kColumns = kSubGroups * kUnit, kChunks = kColumns / kLanes;
  const Team& team = block.team();
  const int n = group_length(place, group * kColumns, kColumns);
  const float* x = place.values + group * kColumns;
  const int exponent = group_exponent(largest_of<Block>(team, args, place.row, x, kChunks));
  const float factor = power_of_two(-exponent);
  const uint16_t offset = mean_offset(team, x, kChunks, n, exponent);
  const float z = Team::from_half(offset), shift = z * factor;

  const float largest = largest_square(team, x, n / kUnit, factor, shift);
  int stored = 0;
  float limit = kLargestHalf, d = 0;
  if (largest > 0) {
    const int nearest = nearest_power(args.rule, largest) + exponent;
    const int power = nearest < -24 ? -24 : nearest > 15 ? 15 : nearest;
    d = power_of_two(power);
    stored = exponent - power;
    if (kLargestHalf / d < limit) limit = kLargestHalf / d;
  }
  WALSH_NO_UNROLL
  for (int s = 0; s < kSubGroups; ++s) {
    Values values;
    values.load(team, x + s * kUnit, factor, shift);
    const GroupSearch<Team, kThresholds, Values> search(team, args.levels, args.rule, values, kUnit,
                                                        stored, limit);
    const GroupScale scale = search.find();
    if (!team.leads() || s * kUnit >= n) continue;
    const int sub = group * kSubGroups + s;
    place.fits[sub] = {factor, shift,          scale.assigned, d * Team::from_half(scale.half),
                       z,      scale.half == 0};
    args.sub_scales[place.row * args.sub_groups + place.begin / kUnit + sub] = scale.half;
  }
  if (!team.leads() || n == 0) return;
  const int64_t index = place.row * args.groups + place.begin / kColumns + group;
  args.scales[index] = Team::to_half(d);
  args.offsets[index] = offset;
}

template <class Block, int kThresholds>
WALSH_LANE void find_sub_groups(const Block& block, const PassArgs& args, const SpanPlace& place) {
  const int groups = args.span / (kSubGroups * kUnit);
  for (int group = block.team_index(); group < groups; group += block.teams())
    find_sub_group_scales<Block, kThresholds>(block, args, place, group);
}

// Computes the scale of 32 values of q8_0 or q4_0 from the first value with the largest magnitude,
// `largest`. Codes are computed with the inverse of the stored scale, or with 0 if that is 0.
template <class Team>
WALSH_LANE uint16_t absmax_scale(const Team& team, int bits, const float* x, float largest,
                                 float& inverse) {
  using Float = typename Team::Float;
  // `first` becomes the first position with that magnitude, times two, plus one if the value is
  // negative.
  Float first = Team::broadcast(-1e9f);
  for (int i = 1; i >= 0; --i) {
    const Float v = team.load(x + kLanes * i);
    const Float position = (Team::lane() + Team::broadcast(static_cast<float>(kLanes * i))) * 2.0f;
    const Float negative = Team::select(v < 0, Team::broadcast(1), Team::broadcast(0));
    const Float magnitude = Team::map(v, [](float lane) { return magnitude_of(lane); });
    first = Team::select(magnitude == largest, -(position + negative), first);
  }
  const int position = static_cast<int>(-team.max(first));
  const float signed_largest = position % 2 != 0 ? -largest : largest;
  const float exact = bits == 8 ? largest / 127 : signed_largest / -8;
  const float scale = clamped(exact, -kLargestHalf, kLargestHalf);
  const uint16_t half = saturated_half<Team>(scale, kLargestHalf);
  inverse = half == 0 ? 0.0f : 1 / scale;
  return half;
}

template <class Block>
WALSH_LANE void find_absmax(const Block& block, const PassArgs& args, const SpanPlace& place) {
  using Team = typename Block::Team;
  const Team& team = block.team();
  for (int group = block.team_index(); group < args.span / kUnit; group += block.teams()) {
    const float* x = place.values + group * kUnit;
    const float largest = largest_of<Block>(team, args, place.row, x, 2);
    float inverse;
    const uint16_t half = absmax_scale(team, args.bits, x, largest, inverse);
    if (!team.leads() || group * kUnit >= place.columns) continue;
    GroupFit& fit = place.fits[group];
    fit.assigned = inverse;
    fit.scale = Team::from_half(half);
    fit.offset = 0;
    args.scales[place.row * args.groups + place.begin / kUnit + group] = half;
  }
}

// Finds the one scale of a row, which is the span. The warps share the starts of the search.
template <class Block, int kThresholds>
WALSH_LANE void find_row(const Block& block, const PassArgs& args, const SpanPlace& place) {
  using Team = typename Block::Team;
  using Values = MemoryValues<Team>;
  const Team& team = block.team();
  const int n = place.columns;
  const float largest = largest_of<Block>(team, args, place.row, place.values, n / kLanes);
  const int exponent = group_exponent(largest);
  const float factor = power_of_two(-exponent);
  block.sync();
  for (int c = block.thread(); c < n; c += block.threads())
    place.values[c] *= factor;
  block.sync();

  auto* trials = reinterpret_cast<GroupScale*>(place.doubles);
  static_assert(kStarts * sizeof(GroupScale) <= 32 * sizeof(double));
  const Values values{team, place.values, n / kLanes};
  const int starts = args.rule.all_starts ? kStarts : 1;
  if (block.warp() < starts) {
    const GroupSearch<Team, kThresholds, Values> search(team, args.levels, args.rule, values, n,
                                                        exponent, kLargestHalf);
    const bool open = search.rms() > 0;
    for (int s = block.warp(); s < starts; s += block.warps()) {
      const GroupScale c = !args.rule.all_starts ? search.find()
                           : open                ? search.try_start(s, open)
                                                 : GroupScale{};
      if (block.leads_warp()) trials[s] = c;
    }
  }
  block.sync();
  if (block.thread() != 0) return;
  GroupScale best = trials[0];
  for (int s = 1; s < starts; ++s)
    GroupSearch<Team, kThresholds, Values>::keep_better(best, trials[s]);
  place.fits[0] = {1, 0, best.assigned, Team::from_half(best.half), 0, best.half == 0};
  args.scales[place.row] = best.half;
}

template <class Block, GroupKind kKind, int kThresholds>
WALSH_LANE void find_scales(const Block& block, const PassArgs& args, const SpanPlace& place) {
  if constexpr (kKind == GroupKind::plain) {
    find_groups<Block, 8, kThresholds>(block, args, place);
  } else if constexpr (kKind == GroupKind::offset) {
    find_groups<Block, 16, kThresholds>(block, args, place);
  } else if constexpr (kKind == GroupKind::sub_groups) {
    find_sub_groups<Block, kThresholds>(block, args, place);
  } else if constexpr (kKind == GroupKind::row) {
    find_row<Block, kThresholds>(block, args, place);
  } else {
    find_absmax<Block>(block, args, place);
  }
}

}  // namespace walsh::cuda::encoding
