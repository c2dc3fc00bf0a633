// Defines the widths of scalar codes, and how 32 codes lie in words (docs/formats/README.md).
//
// A unit of 32 codes has four octets; octet t has the codes 8 t .. 8 t + 7, one per nibble.
//   2 bits  word j has octet 2 j in the lower and octet 2 j + 1 in the upper half of each nibble
//   3 bits  word j has octet j in the lower three bits of each nibble, and bit j of octet 3 in the
//           fourth
//   4 bits  word j is octet j
//   5 bits  words 0 to 3 have the lower four bits of octets 0 to 3; bit t of each nibble of word 4
//           is the fifth bit of octet t
//   6 bits  words 0 to 3 likewise; words 4 and 5 have the upper two bits, as codes of 2 bits
//   8 bits  a unit is 32 bytes and has no octets
// The functions run on the host and on the device. They only move bits within a nibble, so words
// whose nibbles are permuted (codec/scalar/panels.h) yield octets that are permuted alike.
#pragma once

#include <cstdint>
#include <type_traits>

namespace walsh::scalar {

// Calls body(std::integral_constant<int, Bits>()) with a width.
template <typename Body>
constexpr decltype(auto) with_width(int bits, const Body& body) {
  switch (bits) {
    case 2:
      return body(std::integral_constant<int, 2>());
    case 3:
      return body(std::integral_constant<int, 3>());
    case 4:
      return body(std::integral_constant<int, 4>());
    default:
      return body(std::integral_constant<int, 8>());
  }
}

// Calls body with a width as with_width does, also for widths that only CPUs have: 5 and 6 bits,
// which other programs' files contain.
template <typename Body>
constexpr decltype(auto) with_cpu_width(int bits, const Body& body) {
  switch (bits) {
    case 5:
      return body(std::integral_constant<int, 5>());
    case 6:
      return body(std::integral_constant<int, 6>());
    default:
      return with_width(bits, body);
  }
}

// Returns whether codes of this width may have a scale per 16 weights. Only CPUs multiply with
// these, and only where levels are equidistant.
constexpr bool has_half_units(int bits) {
  return bits == 2 || bits == 3 || bits == 6;
}

// Returns octet t of a unit. `words` may be a pointer, or anything else that yields word j of the
// unit as words[j].
template <int Bits, typename Words>
constexpr uint32_t octet(const Words& words, int t) {
  static_assert(Bits >= 2 && Bits <= 4);
  if constexpr (Bits == 2) {
    return (words[t / 2] >> (2 * (t % 2))) & 0x33333333u;
  } else if constexpr (Bits == 3) {
    if (t < 3) return words[t] & 0x77777777u;
    return ((words[0] >> 3) & 0x11111111u) | ((words[1] >> 2) & 0x22222222u) |
           ((words[2] >> 1) & 0x44444444u);
  } else {
    return words[t];
  }
}

// Returns where the upper bits of octet t lie in the nibbles of a word after the first four.
template <int Bits>
constexpr int upper_word(int t) {
  static_assert(Bits == 5 || Bits == 6);
  return Bits == 5 ? 4 : 4 + t / 2;
}
template <int Bits>
constexpr int upper_shift(int t) {
  return Bits == 5 ? t : 2 * (t % 2);
}
template <int Bits>
inline constexpr uint32_t kUpperMask = Bits == 5 ? 0x11111111u : 0x33333333u;

// Returns the bits of an octet's codes above their lower four bits; octet<4> returns those.
template <int Bits, typename Words>
constexpr uint32_t upper_octet(const Words& words, int t) {
  return words[upper_word<Bits>(t)] >> upper_shift<Bits>(t) & kUpperMask<Bits>;
}

// Writes the Bits words of a unit.
template <int Bits>
constexpr void join_octets(const uint32_t (&octets)[4], uint32_t* words) {
  static_assert(Bits >= 2 && Bits <= 4);
  if constexpr (Bits == 2) {
    words[0] = octets[0] | octets[1] << 2;
    words[1] = octets[2] | octets[3] << 2;
  } else if constexpr (Bits == 3) {
    for (int j = 0; j < 3; ++j)
      words[j] = octets[j] | ((octets[3] >> j) & 0x11111111u) << 3;
  } else {
    for (int j = 0; j < 4; ++j)
      words[j] = octets[j];
  }
}

// Writes the words of a unit after the first four. Bits of `upper` above the width are ignored.
template <int Bits>
constexpr void join_upper_octets(const uint32_t (&upper)[4], uint32_t* words) {
  words[4] = words[Bits - 1] = 0;
  for (int t = 0; t < 4; ++t)
    words[upper_word<Bits>(t)] |= (upper[t] & kUpperMask<Bits>) << upper_shift<Bits>(t);
}

}  // namespace walsh::scalar
