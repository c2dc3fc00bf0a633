// Packing of codes into little-endian 32-bit words (docs/formats/README.md), 32 weights at a time.
#include <bit>
#include <cstring>

#include "codec/tensor.h"

namespace walsh {
namespace {

static_assert(std::endian::native == std::endian::little, "words are stored little-endian");

constexpr int kUnit = 32;

uint32_t load_word(const std::byte* p) {
  uint32_t word;
  std::memcpy(&word, p, 4);
  return word;
}

// Joins the low four bits of eight values to the nibbles 0..7 of a word.
uint32_t join_nibbles(const uint8_t* values) {
  uint32_t word = 0;
  for (int p = 0; p < 8; ++p)
    word |= uint32_t{values[p]} << (4 * p);
  return word;
}

uint8_t nibble(uint32_t word, int p) {
  return static_cast<uint8_t>((word >> (4 * p)) & 15u);
}

void pack2(const uint8_t* codes, uint32_t* words) {
  for (int j = 0; j < 2; ++j) {
    words[j] = join_nibbles(codes + 16 * j) | join_nibbles(codes + 16 * j + 8) << 2;
  }
}

void unpack2(const std::byte* in, uint8_t* codes) {
  for (int j = 0; j < 2; ++j) {
    const uint32_t word = load_word(in + 4 * j);
    for (int p = 0; p < 8; ++p) {
      codes[16 * j + p] = nibble(word, p) & 3;
      codes[16 * j + 8 + p] = nibble(word, p) >> 2;
    }
  }
}

void pack3(const uint8_t* codes, uint32_t* words) {
  for (int i = 0; i < 3; ++i) {
    uint8_t fourth[8];  // bit 3 of the nibbles: bit i of codes 24..31
    for (int p = 0; p < 8; ++p)
      fourth[p] = static_cast<uint8_t>(((codes[24 + p] >> i) & 1) << 3);
    words[i] = join_nibbles(codes + 8 * i) | join_nibbles(fourth);
  }
}

void unpack3(const std::byte* in, uint8_t* codes) {
  for (int p = 0; p < 8; ++p)
    codes[24 + p] = 0;
  for (int i = 0; i < 3; ++i) {
    const uint32_t word = load_word(in + 4 * i);
    for (int p = 0; p < 8; ++p) {
      const uint8_t value = nibble(word, p);
      codes[8 * i + p] = value & 7;
      codes[24 + p] = static_cast<uint8_t>(codes[24 + p] | (value >> 3) << i);
    }
  }
}

void pack4(const uint8_t* codes, uint32_t* words) {
  for (int j = 0; j < 4; ++j)
    words[j] = join_nibbles(codes + 8 * j);
}

void unpack4(const std::byte* in, uint8_t* codes) {
  for (int j = 0; j < 4; ++j) {
    const uint32_t word = load_word(in + 4 * j);
    for (int p = 0; p < 8; ++p)
      codes[8 * j + p] = nibble(word, p);
  }
}

}  // namespace

void unpack_codes(const ScalarCode& code, const std::byte* row, int64_t padded, uint8_t* codes) {
  if (code.bits == 8) {
    std::memcpy(codes, row, static_cast<size_t>(padded));
    return;
  }
  const auto unpack = code.bits == 2 ? unpack2 : code.bits == 3 ? unpack3 : unpack4;
  for (int64_t i = 0; i < padded; i += kUnit, row += 4 * code.bits)
    unpack(row, codes + i);
}

void pack_codes(const ScalarCode& code, const uint8_t* codes, int64_t padded, std::byte* row) {
  if (code.bits == 8) {
    std::memcpy(row, codes, static_cast<size_t>(padded));
    return;
  }
  const auto pack = code.bits == 2 ? pack2 : code.bits == 3 ? pack3 : pack4;
  for (int64_t i = 0; i < padded; i += kUnit, row += 4 * code.bits) {
    uint32_t words[4];
    pack(codes + i, words);
    std::memcpy(row, words, static_cast<size_t>(4 * code.bits));
  }
}

}  // namespace walsh
