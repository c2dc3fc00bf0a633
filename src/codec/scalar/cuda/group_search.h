// Searches the scale of one group with a team of 16 lanes. The result has the same bits as that of
// codec/scalar/encoder_search.cpp, where a sum is 16 partial sums, with element i in sum i % 16,
// which are added pairwise. Therefore lane l holds elements l, l + 16, ...: its own additions are
// those of partial sum l, and the sums of the lanes are combined in the same tree.
//
// Codebooks are symmetric, so levels are looked up by magnitude with half as many comparisons. The
// sign does not matter for products and squares.
//
// Team is a set of lanes: Float is a float per lane, load(p) reads p[lane], and sum and max give
// every lane the result over all lanes. On the device Float is float, and a warp is two teams,
// which execute every call together.
#pragma once

#include "base/half.h"
#include "codec/scalar/cuda/encode_args.h"
#include "codec/scalar/cuda/lane_math.h"

namespace walsh::cuda::encoding {

inline constexpr int kLanes = 16;

// Holds the values of a group in registers; chunk i has elements 16 i + lane. With kAll all N
// chunks are present, otherwise `chunks` of them.
template <class Team, int N, bool kAll>
struct RegisterValues {
  using Float = typename Team::Float;
  // It is set where the length is known at compile time.
  static constexpr int kLength = kAll ? N * kLanes : 0;
  Float magnitude[N], key[N];
  int chunks = N;

  WALSH_LANE void load(const Team& team, const float* x, float factor, float shift) {
    WALSH_UNROLL
    for (int i = 0; i < N; ++i) {
      const Float v = team.load(x + kLanes * i) * factor - shift;
      magnitude[i] = Team::map(v, [](float lane) { return magnitude_of(lane); });
      key[i] = Team::map(v, [](float lane) { return key_of(lane); });
    }
  }

  // Calls f(chunk, magnitude, key) for all chunks, in ascending order.
  template <class F>
  WALSH_LANE void each(F f) const {
    WALSH_UNROLL
    for (int i = 0; i < N; ++i) {
      if (kAll || i < chunks) f(i, magnitude[i], key[i]);
    }
  }
};

// Reads the values of a group of any length from memory, with the same functions.
template <class Team>
struct MemoryValues {
  using Float = typename Team::Float;
  static constexpr int kLength = 0;
  const Team& team;
  const float* x;
  int chunks;

  template <class F>
  WALSH_LANE void each(F f) const {
#ifdef __CUDACC__
#pragma unroll 8
#endif
    for (int i = 0; i < chunks; ++i) {
      const Float v = team.load(x + kLanes * i);
      f(i, Team::map(v, [](float lane) { return magnitude_of(lane); }),
        Team::map(v, [](float lane) { return key_of(lane); }));
    }
  }
};

struct GroupScale {
  uint16_t half = 0;  // This fp16 scale is stored; with 0 all values decode to zeros.
  float decoded = 0;  // This is the stored scale, in the units of the values.
  // Scales the thresholds. It equals `decoded`, except for shape-gain.
  float assigned = 0;
  // It is a sum of squares. A search with a single start does not set it.
  float error = 0;
};

// Returns the nearest fp16, at most `largest` in magnitude and never -0.
template <class Team>
WALSH_LANE uint16_t saturated_half(float value, float largest) {
  const uint16_t half = Team::to_half(clamped(value, -largest, largest));
  return half == 0x8000u ? uint16_t{0} : half;
}

// Chooses the magnitude, among kThresholds + 1, by how many thresholds the key exceeds.
template <class Team, int kThresholds>
WALSH_LANE typename Team::Float choose(const float (&thresholds)[kThresholds],
                                       const float (&magnitudes)[kThresholds + 1],
                                       typename Team::Float key) {
  typename Team::Float level = Team::broadcast(magnitudes[0]);
  WALSH_UNROLL
  for (int k = 0; k < kThresholds; ++k)
    level = Team::select(key > thresholds[k], Team::broadcast(magnitudes[k + 1]), level);
  return level;
}

// Searches a group's scale. The stored scale is scale * 2^exponent, at most `largest`.
template <class Team, int kThresholds, class Values>
class GroupSearch {
 public:
  using Float = typename Team::Float;

  // The group has n elements, given by `values`.
  WALSH_LANE GroupSearch(const Team& team, const Levels& levels, const SearchRule& rule,
                         const Values& values, int n, int exponent, float largest)
      : team_(team),
        levels_(levels),
        rule_(rule),
        values_(values),
        exponent_(exponent),
        largest_(largest) {
    Float squares{};
    values_.each([&](int, Float a, Float) { squares += a * a; });
    squares_ = team_.sum(squares);
    rms_ = root_mean(squares_, n);
  }

  WALSH_LANE float rms() const { return rms_; }

  WALSH_LANE GroupScale stored(float scale) const {
    GroupScale c;
    c.half = saturated_half<Team>(scaled(scale, exponent_), largest_);
    c.decoded = scaled(Team::from_half(c.half), -exponent_);
    c.assigned = c.decoded;
    return c;
  }

  // Alternates assignment to the nearest levels and a least-squares refit, while the team is
  // `open`.
  WALSH_LANE float refit(float scale, bool open) const {
    WALSH_NO_UNROLL
    for (int round = 0; round < kRounds && team_.any(open); ++round) {
      const Sums p = products(scale);
      const float next = p.xq / p.qq;
      open = open && p.qq > 0 && p.xq > 0 && next != scale;
      if (open) scale = next;
    }
    return scale;
  }

  // Returns the scale that the rule gives, {} for a group of zeros.
  WALSH_LANE GroupScale find() const {
    const bool open = rms_ > 0;
    const float start = rms_ * rule_.start;
    GroupScale best;
    if (rule_.sigma) {
      best = stored(start);
    } else if (rule_.shape_gain) {
      best = shape_gain(start);
    } else {
      best = stored(refit(start * rule_.factors[0], open));
      if (rule_.all_starts) {
        best.error = error(best);
        WALSH_NO_UNROLL
        for (int s = 1; s < kStarts; ++s)
          keep_better(best, try_start(s, open));
      }
    }
    return open ? best : GroupScale{};
  }

  WALSH_LANE GroupScale try_start(int s, bool open) const {
    GroupScale c = stored(refit(rms_ * rule_.start * rule_.factors[s], open));
    c.error = error(c);
    return c;
  }

  static WALSH_LANE void keep_better(GroupScale& best, const GroupScale& c) {
    if (c.error < best.error) best = c;
  }

  // Returns the sum of (x - level(x))^2 over the group.
  WALSH_LANE float error(const GroupScale& c) const {
    float thresholds[kThresholds], magnitudes[kThresholds + 1];
    scale_levels(c.assigned, c.decoded, thresholds, magnitudes);
    Float squares{};
    values_.each([&](int, Float a, Float key) {
      const Float difference = a - choose<Team, kThresholds>(thresholds, magnitudes, key);
      squares += difference * difference;
    });
    const float total = team_.sum(squares);
    return c.half == 0 ? squares_ : total;
  }

  // Calls f(chunk, x - level(x)), where the difference has its sign.
  template <class F>
  WALSH_LANE void differences(const GroupScale& c, F f) const {
    float thresholds[kThresholds], magnitudes[kThresholds + 1];
    scale_levels(c.assigned, c.decoded, thresholds, magnitudes);
    values_.each([&](int i, Float a, Float key) {
      const Float difference = a - choose<Team, kThresholds>(thresholds, magnitudes, key);
      f(i, Team::select(key != a, -difference, difference));
    });
  }

 private:
  struct Sums {
    float xq, qq;
  };

  // Returns the root of squares / n, computed in double and rounded. If n is a power of two, floats
  // without denormals give the same result, because the quotient is exact, and because rounding a
  // square root twice equals rounding it once if the wider type has more than twice the digits
  // (Figueroa 1995).
  static WALSH_LANE float root_mean(float squares, int n) {
    if constexpr (Values::kLength != 0) {
      static_assert((Values::kLength & (Values::kLength - 1)) == 0);
      if (squares > 1e-30f) return sqrtf(squares * (1.0f / Values::kLength));
    }
    return static_cast<float>(sqrt(static_cast<double>(squares) / static_cast<double>(n)));
  }

  WALSH_LANE void scale_levels(float scale, float level_scale, float (&thresholds)[kThresholds],
                               float (&magnitudes)[kThresholds + 1]) const {
    WALSH_UNROLL
    for (int k = 0; k < kThresholds; ++k)
      thresholds[k] = levels_.midpoint[k] * scale;
    WALSH_UNROLL
    for (int k = 0; k <= kThresholds; ++k)
      magnitudes[k] = levels_.magnitude[k] * level_scale;
  }

  WALSH_LANE Sums products(float scale) const {
    float thresholds[kThresholds], magnitudes[kThresholds + 1];
    scale_levels(scale, 1, thresholds, magnitudes);
    Float xq{}, qq{};
    values_.each([&](int, Float a, Float key) {
      const Float level = choose<Team, kThresholds>(thresholds, magnitudes, key);
      xq += a * level;
      qq += level * level;
    });
    Sums sums;
    team_.sum_two(xq, qq, sums.xq, sums.qq);
    return sums;
  }

  WALSH_LANE GroupScale shape_gain(float scale) const {
    const Sums p = products(scale);
    const float gain = p.qq > 0 ? sqrtf(squares_ / p.qq) : scale;
    GroupScale c = stored(gain);
    c.assigned = scale;
    return c;
  }

  const Team& team_;
  const Levels& levels_;
  const SearchRule& rule_;
  const Values& values_;
  int exponent_;
  float largest_;
  float squares_ = 0, rms_ = 0;
};

}  // namespace walsh::cuda::encoding
