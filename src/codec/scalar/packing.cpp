// Packs codes into little-endian 32-bit words (docs/formats/README.md), 32 weights at a time.
#include <algorithm>
#include <bit>
#include <cstring>

#include "codec/scalar/words.h"
#include "codec/tensor.h"

namespace walsh {
namespace {

static_assert(std::endian::native == std::endian::little, "words are stored little-endian");

constexpr int kUnit = 32;

// Joins the low four bits of eight values, or the bits above those, to the nibbles 0..7 of a word.
uint32_t join_nibbles(const uint8_t* values) {
  uint32_t word = 0;
  for (int p = 0; p < 8; ++p)
    word |= uint32_t{values[p] & 15u} << (4 * p);
  return word;
}
uint32_t join_upper(const uint8_t* values) {
  uint32_t word = 0;
  for (int p = 0; p < 8; ++p)
    word |= uint32_t{values[p]} >> 4 << (4 * p);
  return word;
}

uint8_t nibble(uint32_t word, int p) {
  return static_cast<uint8_t>((word >> (4 * p)) & 15u);
}

template <int Bits>
void pack_unit(const uint8_t* codes, std::byte* out) {
  uint32_t octets[4], words[Bits];
  for (int t = 0; t < 4; ++t)
    octets[t] = join_nibbles(codes + 8 * t);
  scalar::join_octets<std::min(Bits, 4)>(octets, words);
  if constexpr (Bits > 4) {
    uint32_t upper[4];
    for (int t = 0; t < 4; ++t)
      upper[t] = join_upper(codes + 8 * t);
    scalar::join_upper_octets<Bits>(upper, words);
  }
  std::memcpy(out, words, sizeof words);
}

template <int Bits>
void unpack_unit(const std::byte* in, uint8_t* codes) {
  uint32_t words[Bits];
  std::memcpy(words, in, sizeof words);
  for (int t = 0; t < 4; ++t) {
    const uint32_t octet = scalar::octet<std::min(Bits, 4)>(words, t);
    for (int p = 0; p < 8; ++p)
      codes[8 * t + p] = nibble(octet, p);
    if constexpr (Bits > 4) {
      const uint32_t upper = scalar::upper_octet<Bits>(words, t);
      for (int p = 0; p < 8; ++p)
        codes[8 * t + p] |= static_cast<uint8_t>(nibble(upper, p) << 4);
    }
  }
}

}  // namespace

void unpack_codes(const ScalarCode& code, const std::byte* row, int64_t padded, uint8_t* codes) {
  scalar::with_cpu_width(code.bits, [&](auto bits) {
    if constexpr (bits == 8) {
      std::memcpy(codes, row, static_cast<size_t>(padded));
    } else {
      for (int64_t i = 0; i < padded; i += kUnit)
        unpack_unit<bits>(row + i / 8 * bits, codes + i);
    }
  });
}

void pack_codes(const ScalarCode& code, const uint8_t* codes, int64_t padded, std::byte* row) {
  scalar::with_cpu_width(code.bits, [&](auto bits) {
    if constexpr (bits == 8) {
      std::memcpy(row, codes, static_cast<size_t>(padded));
    } else {
      for (int64_t i = 0; i < padded; i += kUnit)
        pack_unit<bits>(codes + i, row + i / 8 * bits);
    }
  });
}

}  // namespace walsh
