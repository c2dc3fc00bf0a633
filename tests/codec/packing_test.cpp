// Tests packing against the bit-by-bit definition of docs/formats/README.md.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/random.h"
#include "codec/tensor.h"

namespace walsh {
namespace {

ScalarCode with_bits(int bits) {
  ScalarCode code;
  code.bits = bits;
  return code;
}

// Returns the position of bit `bit` of weight w's code in a row's little-endian words.
int64_t bit_position(int bits, int64_t w, int bit) {
  switch (bits) {
    case 2: {
      const int64_t word = w / 16, in_word = w % 16, p = in_word % 8;
      return 32 * word + 4 * p + (in_word < 8 ? 0 : 2) + bit;
    }
    case 3: {
      const int64_t unit = w / 32, in_unit = w % 32, i = in_unit / 8, p = in_unit % 8;
      if (i < 3) return 32 * (3 * unit + i) + 4 * p + bit;
      return 32 * (3 * unit + bit) + 4 * p + 3;
    }
    case 4:
      return 4 * w + bit;
    case 5:
    case 6: {
      const int64_t unit = w / 32, i = w % 32 / 8, p = w % 8, first = 32 * bits * unit;
      if (bit < 4) return first + 32 * i + 4 * p + bit;
      if (bits == 5) return first + 32 * 4 + 4 * p + i;
      return first + 32 * (4 + i / 2) + 4 * p + i % 2 * 2 + bit - 4;
    }
    default:
      return 8 * w + bit;
  }
}

std::vector<uint8_t> random_codes(int bits, int64_t n) {
  Random random(static_cast<uint64_t>(bits));
  std::vector<uint8_t> codes(static_cast<size_t>(n));
  for (uint8_t& c : codes)
    c = static_cast<uint8_t>(random.below(uint64_t{1} << bits));
  return codes;
}

TEST(Packing, followsTheBitByBitDefinition) {
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    for (int64_t n : {32, 64, 96, 128, 256, 896}) {
      const ScalarCode code = with_bits(bits);
      const std::vector<uint8_t> codes = random_codes(bits, n);
      std::vector<std::byte> expected(static_cast<size_t>(code_bytes_per_row(code, n)));
      EXPECT_EQ(static_cast<int64_t>(expected.size()), n * bits / 8);
      for (int64_t w = 0; w < n; ++w) {
        for (int bit = 0; bit < bits; ++bit) {
          if (((codes[static_cast<size_t>(w)] >> bit) & 1) == 0) continue;
          const int64_t at = bit_position(bits, w, bit);
          expected[static_cast<size_t>(at / 8)] |= std::byte{1} << (at % 8);
        }
      }
      std::vector<std::byte> packed(expected.size());
      pack_codes(code, codes.data(), n, packed.data());
      EXPECT_EQ(packed, expected) << bits << " bits, " << n << " weights";
      std::vector<uint8_t> back(codes.size());
      unpack_codes(code, packed.data(), n, back.data());
      EXPECT_EQ(back, codes) << bits << " bits, " << n << " weights";
    }
  }
}

TEST(Packing, everyByteStringUnpacksToValidCodesAndBack) {
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    const ScalarCode code = with_bits(bits);
    Random random(99);
    std::vector<std::byte> bytes(static_cast<size_t>(code_bytes_per_row(code, 256)));
    for (std::byte& b : bytes)
      b = static_cast<std::byte>(random.below(256));
    std::vector<uint8_t> codes(256);
    unpack_codes(code, bytes.data(), 256, codes.data());
    for (uint8_t c : codes)
      EXPECT_LT(c, 1 << bits);
    std::vector<std::byte> back(bytes.size());
    pack_codes(code, codes.data(), 256, back.data());
    EXPECT_EQ(back, bytes);
  }
}

}  // namespace
}  // namespace walsh
