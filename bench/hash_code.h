// Candidates for the trellis codes whose weights are the bytes of a product (docs/formats/
// tc_candidates.md): what a state of 16 bits decodes to. The definition that the search for
// multipliers, the prototype kernels of both devices and their tests share.
//
// Two weights per step of k bits. Tiles, the order of their weights, the place of a step's bits and
// tail-biting are those of two weights per step in formats/trellis.h. With a state s of L bits,
//   P = s * M mod 2^32, bytes b0 (lowest) .. b3; of a second multiplier c0 .. c3,
//   value 0 comes from b0, b2 (c0, c2), value 1 from b1, b3 (c1, c3), all by the same rule.
// Multipliers (m << 16) + m with 16-bit m are cheap for 16-bit lanes: the lower half of P is
// lo(s m) and the upper half lo(s m) + hi(s m). Rules of one byte need the upper half only, which
// is lo(s (M >> 16)) + hi(s (M mod 2^16)); multiples of 2^10 save GPUs most shifts. Levels are int8
// except those of `raw` rules.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "formats/format.h"

namespace walsh {

enum class HashRule : uint8_t {
  raw2,    // b0 + b2 - 255
  raw4,    // b0 + b2 + c0 + c2 - 510
  flat,    // the lower seven bits of b0 + those of b2, - 127
  bell,    // bits of b0 and of b2 count 1 2 4 8 16 32 32 32, - 127
  bits,    // bits of b2 count 2 4 8 16 4 8 16 16, - 37
  fine,    // bits of b2 count 2 4 8 8 16 8 16 16, - 39
  table7,  // the lower seven bits of b2 choose one of 128 quantiles of N(0,1)
  table8,  // b2 chooses one of 256 quantiles
};

struct HashRuleName {
  HashRule rule;
  std::string_view name;
};
inline constexpr HashRuleName kHashRules[] = {
    {HashRule::raw2, "raw2"},     {HashRule::raw4, "raw4"},    {HashRule::flat, "flat"},
    {HashRule::bell, "bell"},     {HashRule::bits, "bits"},    {HashRule::fine, "fine"},
    {HashRule::table7, "table7"}, {HashRule::table8, "table8"}};

constexpr bool is_raw(HashRule rule) {
  return rule == HashRule::raw2 || rule == HashRule::raw4;
}
// Whether a rule uses only bytes 2 and 3 of the product.
constexpr bool is_one_byte(HashRule rule) {
  return rule == HashRule::bits || rule == HashRule::fine || rule == HashRule::table7 ||
         rule == HashRule::table8;
}

// The bias that makes levels unsigned bytes, as kernels look them up.
constexpr int level_bias(HashRule rule) {
  switch (rule) {
    case HashRule::raw2:
      return 255;
    case HashRule::raw4:
      return 510;
    case HashRule::bits:
      return 37;
    case HashRule::fine:
      return 39;
    case HashRule::table7:
    case HashRule::table8:
      return 128;
    default:
      return 127;
  }
}

struct HashCode {
  HashRule rule = HashRule::flat;
  int step_bits = 6, state_bits = 16;
  uint32_t multiplier = 1, second = 1;  // `second` of raw4 only

  // The code's tile layout; its table is not used.
  TrellisCode layout() const {
    TrellisCode code;
    code.step_bits = step_bits;
    code.state_bits = state_bits;
    code.values = 2;
    return code;
  }
};

constexpr uint32_t folded_multiplier(uint32_t m) {
  return (m & 0xffffu) * 0x10001u;
}

// Unnamed, because the files that include this are compiled for different instruction sets.
namespace {

// x with P(N(0,1) < x) = share, by bisection.
inline double normal_quantile(double share) {
  double low = -8, high = 8;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) < 2 * share ? low : high) = middle;
  }
  return low;
}

// round(127 z(i) / z(last)), z(i) the quantile (i + 1/2) / Size.
template <int Size>
const std::array<int8_t, Size>& quantile_levels() {
  static const std::array<int8_t, Size> levels = [] {
    std::array<int8_t, Size> table{};
    const double last = normal_quantile((Size - 0.5) / Size);
    for (int i = 0; i < Size; ++i) {
      const double z = normal_quantile((i + 0.5) / Size);
      table[static_cast<size_t>(i)] = static_cast<int8_t>(std::lround(127 * z / last));
    }
    return table;
  }();
  return levels;
}

// The weighted number of set bits of a byte.
constexpr int weighted_bits(uint32_t byte, const std::array<int, 8>& counts) {
  int sum = 0;
  for (uint32_t i = 0; i < 8; ++i)
    sum += (byte >> i & 1) != 0 ? counts[i] : 0;
  return sum;
}
inline constexpr std::array<int, 8> kBellCounts{1, 2, 4, 8, 16, 32, 32, 32};
inline constexpr std::array<int, 8> kBitCounts{2, 4, 8, 16, 4, 8, 16, 16};
inline constexpr std::array<int, 8> kFineCounts{2, 4, 8, 8, 16, 8, 16, 16};

// The level of value 0 or 1 of a step.
inline int hash_level(const HashCode& code, uint32_t state, int value) {
  const auto byte = [&](uint32_t product, int i) { return product >> (8 * (i + value)) & 255u; };
  const uint32_t p = state * code.multiplier, q = state * code.second;
  const uint32_t low = byte(p, 0), high = byte(p, 2);
  switch (code.rule) {
    case HashRule::raw2:
      return static_cast<int>(low + high) - 255;
    case HashRule::raw4:
      return static_cast<int>(low + high + byte(q, 0) + byte(q, 2)) - 510;
    case HashRule::flat:
      return static_cast<int>((low & 127) + (high & 127)) - 127;
    case HashRule::bell:
      return weighted_bits(low, kBellCounts) + weighted_bits(high, kBellCounts) - 127;
    case HashRule::bits:
      return weighted_bits(high, kBitCounts) - 37;
    case HashRule::fine:
      return weighted_bits(high, kFineCounts) - 39;
    case HashRule::table7:
      return quantile_levels<128>()[high & 127];
    case HashRule::table8:
      return quantile_levels<256>()[high];
  }
  std::abort();
}

}  // namespace

}  // namespace walsh
