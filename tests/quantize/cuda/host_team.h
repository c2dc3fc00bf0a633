// Runs the GPU encoder's arithmetic on the host: one thread in the role of a team of 16 lanes, with
// arrays for values. Sums of doubles (error, norm) are added in another order than on the device.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "codec/scalar/cuda/encode_plan.h"
#include "codec/scalar/cuda/encode_span.h"

namespace walsh::cuda::encoding {

// Holds a value per lane, with the operators that the kernels use on floats.
template <class T>
struct Lanes {
  T v[kLanes] = {};
};

template <class F>
auto each_lane(F f) {
  Lanes<decltype(f(0))> out;
  for (int l = 0; l < kLanes; ++l)
    out.v[l] = f(l);
  return out;
}

using LaneFloats = Lanes<float>;
using LaneBools = Lanes<bool>;

inline LaneFloats operator+(const LaneFloats& a, const LaneFloats& b) {
  return each_lane([&](int l) { return a.v[l] + b.v[l]; });
}
inline LaneFloats operator-(const LaneFloats& a, const LaneFloats& b) {
  return each_lane([&](int l) { return a.v[l] - b.v[l]; });
}
inline LaneFloats operator*(const LaneFloats& a, const LaneFloats& b) {
  return each_lane([&](int l) { return a.v[l] * b.v[l]; });
}
inline LaneFloats operator*(const LaneFloats& a, float b) {
  return each_lane([&](int l) { return a.v[l] * b; });
}
inline LaneFloats operator-(const LaneFloats& a, float b) {
  return each_lane([&](int l) { return a.v[l] - b; });
}
inline LaneFloats operator-(const LaneFloats& a) {
  return each_lane([&](int l) { return -a.v[l]; });
}
inline LaneFloats& operator+=(LaneFloats& a, const LaneFloats& b) {
  return a = a + b;
}
inline LaneBools operator>(const LaneFloats& a, const LaneFloats& b) {
  return each_lane([&](int l) { return a.v[l] > b.v[l]; });
}
inline LaneBools operator!=(const LaneFloats& a, const LaneFloats& b) {
  return each_lane([&](int l) { return a.v[l] != b.v[l]; });
}
inline LaneBools operator>(const LaneFloats& a, float b) {
  return each_lane([&](int l) { return a.v[l] > b; });
}
inline LaneBools operator<(const LaneFloats& a, float b) {
  return each_lane([&](int l) { return a.v[l] < b; });
}
inline LaneBools operator==(const LaneFloats& a, float b) {
  return each_lane([&](int l) { return a.v[l] == b; });
}

struct HostTeam {
  using Float = LaneFloats;

  static Float lane() {
    return each_lane([](int l) { return static_cast<float>(l); });
  }
  static bool leads() { return true; }
  static void sync() {}

  static Float load(const float* p) {
    return each_lane([p](int l) { return p[l]; });
  }
  template <class T>
  static void store(T* p, const Float& v) {
    for (int l = 0; l < kLanes; ++l)
      p[l] = static_cast<T>(v.v[l]);
  }
  static Float broadcast(float v) {
    return each_lane([v](int) { return v; });
  }
  static Float select(const LaneBools& which, const Float& a, const Float& b) {
    return each_lane([&](int l) { return which.v[l] ? a.v[l] : b.v[l]; });
  }
  template <class F>
  static Float map(const Float& v, F f) {
    return each_lane([&](int l) { return f(v.v[l]); });
  }

  static float sum(Float s) {
    for (int width = kLanes / 2; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i)
        s.v[i] += s.v[i + width];
    }
    return s.v[0];
  }
  static void sum_two(const Float& a, const Float& b, float& sum_a, float& sum_b) {
    sum_a = sum(a);
    sum_b = sum(b);
  }
  static float max(const Float& v) { return *std::max_element(v.v, v.v + kLanes); }
  static bool any(bool v) { return v; }
  static bool all(bool v) { return v; }

  static Float butterfly8(const Float& v) {
    return each_lane([&](int l) { return l >= 8 ? v.v[l ^ 8] - v.v[l] : v.v[l ^ 8] + v.v[l]; });
  }

  static float from_half(uint16_t h) { return f16_to_f32(h); }
  static uint16_t to_half(float v) { return f32_to_f16(v); }
  static float from_bfloat(uint16_t h) { return bf16_to_f32(h); }
  static uint16_t to_bfloat(float v) { return f32_to_bf16(v); }
};

struct HostBlock {
  using Team = HostTeam;
  static int thread() { return 0; }
  static int threads() { return 1; }
  static int team_index() { return 0; }
  static int teams() { return 1; }
  static int warp() { return 0; }
  static int warps() { return 1; }
  static bool leads_warp() { return true; }
  static Team team() { return {}; }
  static void sync() {}
  static void add_up(double v, double* out) { *out = v; }
  static void keep_least(uint64_t* p, uint64_t v) { *p = std::min(*p, v); }
};

// Runs every span of rows [0, rows), as launch_pass does it on the device.
template <GroupKind kKind, int kThresholds>
void run_pass(const PassArgs& args, int64_t rows) {
  struct alignas(16) Piece {
    std::byte bytes[16];
  };
  const size_t bytes = span_layout(kKind, args.span).bytes;
  std::vector<Piece> memory((bytes + sizeof(Piece) - 1) / sizeof(Piece));
  for (int64_t i = 0; i < rows * args.spans; ++i) {
    std::memset(memory.data(), 0xff, bytes);  // NaN: what is read must have been written
    encode_span<HostBlock, kKind, kThresholds>(HostBlock{}, args, static_cast<uint32_t>(i),
                                               memory.front().bytes);
  }
}

template <GroupKind kKind>
void run_thresholds(int thresholds, const PassArgs& args, int64_t rows) {
  if (thresholds == 1) return run_pass<kKind, 1>(args, rows);
  if (thresholds == 3) return run_pass<kKind, 3>(args, rows);
  return run_pass<kKind, 7>(args, rows);
}

inline void run_pass(const PassPlan& plan, const PassArgs& args, int64_t rows) {
  switch (plan.kind) {
    case GroupKind::plain:
      return run_thresholds<GroupKind::plain>(plan.thresholds, args, rows);
    case GroupKind::offset:
      return run_thresholds<GroupKind::offset>(plan.thresholds, args, rows);
    case GroupKind::sub_groups:
      return run_pass<GroupKind::sub_groups, 3>(args, rows);
    case GroupKind::row:
      return run_thresholds<GroupKind::row>(plan.thresholds, args, rows);
    case GroupKind::absmax:
      return run_pass<GroupKind::absmax, 1>(args, rows);
  }
}

}  // namespace walsh::cuda::encoding
