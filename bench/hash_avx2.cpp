// Products with AVX2. 128 bits hold all sixteen states of a pair of rows g, g + 8 (seventeen bytes
// with 8 bits per step); a byte shuffle brings the window of two states to every 32-bit lane, a
// variable shift and a blend make them words, and 16-bit multiplications hash sixteen at once.
#include <immintrin.h>

#include <cstring>

#include "hash_kernels.h"
#include "kernels/unroll.h"

namespace walsh {
namespace {

using detail::unroll;

// The states of a tile. The 32-bit lanes of a half are row g of quad 2 j, row g + 8 of quad 2 j,
// and the same rows of quad 2 j + 1; the two halves are two neighbouring g. The low word of a lane
// is the state of columns 2 and 3 of the quad, the high word that of columns 0 and 1.
template <int kBits>
class States {
  static constexpr int kTileBytes = 16 * kBits;
  static constexpr bool kWhole = kBits == 8;  // states are whole bytes: no shifts

 public:
  States() {
    for (int j = 0; j < 2; ++j) {
      alignas(32) uint8_t from[32];
      alignas(32) uint32_t shift[8];
      for (int lane = 0; lane < 8; ++lane) {
        const int newer = 8 * j + 2 * (lane % 4) + 1;  // step of the row pair
        const int bit = kBits * ((kWhole ? 7 + 8 * j : 15) - newer);
        shift[lane] = static_cast<uint32_t>(bit % 8);
        for (int i = 0; i < 4; ++i) {
          const int byte = kWhole ? bit / 8 + (i + 1) / 2 : bit / 8 + i;
          from[4 * lane + i] = static_cast<uint8_t>(byte);
        }
      }
      from_[j] = _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
      shift_[j] = _mm256_load_si256(reinterpret_cast<const __m256i*>(shift));
    }
  }

  // Calls emit(j, states) for j = 0, 1 of row pairs 2 pair, 2 pair + 1.
  template <int kPair, typename Emit>
  __attribute__((always_inline)) void decode(const std::byte* tile, const Emit& emit) const {
    unroll<2>([&](auto j) __attribute__((always_inline)) {
      const __m256i bytes = _mm256_inserti128_si256(
          _mm256_castsi128_si256(load<2 * kPair, j>(tile)), load<2 * kPair + 1, j>(tile), 1);
      const __m256i window = _mm256_shuffle_epi8(bytes, from_[j]);
      if constexpr (kWhole) {
        emit(j, window);
      } else {
        const __m256i newer = _mm256_srlv_epi32(window, shift_[j]);
        emit(j, _mm256_blend_epi16(newer, _mm256_slli_epi32(newer, 16 - kBits), 0xaa));
      }
    });
  }

 private:
  // The bits of row pair g's steps, or only those of quads 2 j and 2 j + 1 if states are whole
  // bytes.
  template <int kG, int kJ>
  __attribute__((always_inline)) static __m128i load(const std::byte* tile) {
    constexpr int kStart = kBits * (14 - 2 * kG) + (kWhole && kJ == 0 ? 8 : 0);
    constexpr int kBeyond = kStart + 16 - kTileBytes;  // bytes that are at the tile's start
    const auto at = [&](int byte) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(tile + byte));
    };
    if constexpr (kBeyond > 0) {
      return _mm_alignr_epi8(at(0), at(kTileBytes - 16), kBeyond);
    } else {
      return at(kStart);
    }
  }

  __m256i from_[2], shift_[2];
};

template <bool kFolded>
class Hash {
 public:
  explicit Hash(uint32_t multiplier)
      : low_(_mm256_set1_epi16(static_cast<short>(multiplier))),
        high_(_mm256_set1_epi16(static_cast<short>(multiplier >> 16))) {}
  __attribute__((always_inline)) void of(__m256i state, __m256i& low, __m256i& high) const {
    low = _mm256_mullo_epi16(state, low_);
    const __m256i more = kFolded ? low : _mm256_mullo_epi16(state, high_);
    high = _mm256_add_epi16(_mm256_mulhi_epu16(state, low_), more);
  }

 private:
  __m256i low_, high_;
};

// Sixteen columns of x: quads 2 j (twice) and 2 j + 1 (twice) in each half, with their column pairs
// exchanged.
struct Inputs {
  __m256i x[2], magnitude[2];

  explicit Inputs(const int8_t* columns) {
    const __m256i all =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(columns)));
    const __m256i order = _mm256_setr_epi8(2, 3, 0, 1, 2, 3, 0, 1, 6, 7, 4, 5, 6, 7, 4, 5, 2, 3, 0,
                                           1, 2, 3, 0, 1, 6, 7, 4, 5, 6, 7, 4, 5);
    x[0] = _mm256_shuffle_epi8(all, order);
    x[1] = _mm256_shuffle_epi8(all, _mm256_add_epi8(order, _mm256_set1_epi8(8)));
    for (int j = 0; j < 2; ++j)
      magnitude[j] = _mm256_abs_epi8(x[j]);
  }
};

template <HashRule kRule>
class Levels {
 public:
  static constexpr bool kSmall = kRule == HashRule::bits || kRule == HashRule::fine;
  // Subtracted from sums of small levels, which keep the bias for the unsigned operand.
  static constexpr int kBias = kSmall || is_raw(kRule) ? level_bias(kRule) : 0;

  Levels() {
    if constexpr (!is_one_byte(kRule)) return;
    const HashCode code{kRule, 6, 16, 1u << 16, 1};  // byte 2 is the state's lower byte
    const auto at = [&](uint32_t byte) { return hash_level(code, byte, 0) + kBias; };
    for (uint32_t part = 0; part < 8; ++part) {
      alignas(16) int8_t levels[16];
      for (uint32_t i = 0; i < 16; ++i) {
        uint32_t byte = 16 * part + i;
        if (kRule == HashRule::table8) byte += 128;
        if (kRule == HashRule::table7) byte = 64 + byte % 64;
        if (kSmall) byte = part == 0 ? i : 16 * i;
        levels[i] = static_cast<int8_t>(at(byte));
      }
      parts_[part] =
          _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(levels)));
    }
  }

  // Adds the products of sixteen states; not for raw rules.
  __attribute__((always_inline)) __m256i dot(__m256i low, __m256i high, const Inputs& in, int j,
                                             __m256i sum) const {
    __m256i pairs;
    if constexpr (kSmall) {
      pairs = _mm256_maddubs_epi16(count(high), in.x[j]);
    } else {
      pairs = _mm256_maddubs_epi16(in.magnitude[j], _mm256_sign_epi8(level(low, high), in.x[j]));
    }
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }

  // dot() for raw rules, whose sums of two bytes are words.
  __attribute__((always_inline)) static __m256i dot_raw(__m256i low, __m256i high, const Inputs& in,
                                                        int j, __m256i sum) {
    const __m256i byte = _mm256_set1_epi16(0x00ff);
    const __m256i even =
        _mm256_add_epi16(_mm256_and_si256(low, byte), _mm256_and_si256(high, byte));
    const __m256i odd = _mm256_add_epi16(_mm256_srli_epi16(low, 8), _mm256_srli_epi16(high, 8));
    const __m256i x_even = _mm256_srai_epi16(_mm256_slli_epi16(in.x[j], 8), 8);
    const __m256i x_odd = _mm256_srai_epi16(in.x[j], 8);
    return _mm256_add_epi32(
        sum, _mm256_add_epi32(_mm256_madd_epi16(even, x_even), _mm256_madd_epi16(odd, x_odd)));
  }

 private:
  __attribute__((always_inline)) static __m256i masked(__m256i a, int v) {
    return _mm256_and_si256(a, _mm256_set1_epi8(static_cast<char>(v)));
  }
  // Weighted counts of bits, looked up by nibbles.
  __attribute__((always_inline)) __m256i count(__m256i h) const {
    return _mm256_add_epi8(_mm256_shuffle_epi8(parts_[0], masked(h, 0x0f)),
                           _mm256_shuffle_epi8(parts_[1], masked(_mm256_srli_epi16(h, 4), 0x0f)));
  }
  __attribute__((always_inline)) __m256i level(__m256i low, __m256i high) const {
    if constexpr (kRule == HashRule::flat) {
      return _mm256_sub_epi8(_mm256_add_epi8(masked(low, 0x7f), masked(high, 0x7f)),
                             _mm256_set1_epi8(127));
    } else if constexpr (kRule == HashRule::bell) {
      const auto bell = [&](__m256i b) __attribute__((always_inline)) {
        const __m256i once = _mm256_avg_epu8(b, masked(b, 0x7f));
        return _mm256_avg_epu8(once, masked(once, 0x3f));
      };
      return _mm256_sub_epi8(_mm256_add_epi8(bell(low), bell(high)), _mm256_set1_epi8(127));
    } else if constexpr (kRule == HashRule::table8) {  // antisymmetric: the upper half
      const __m256i side = _mm256_xor_si256(high, _mm256_set1_epi8(static_cast<char>(0x80)));
      const __m256i below = _mm256_cmpgt_epi8(_mm256_setzero_si256(), side);
      return _mm256_sign_epi8(lookup(_mm256_xor_si256(side, below)),
                              _mm256_or_si256(side, _mm256_set1_epi8(1)));
    } else {  // antisymmetric as well
      const __m256i side = _mm256_sub_epi8(masked(high, 0x7f), _mm256_set1_epi8(64));
      const __m256i below = _mm256_cmpgt_epi8(_mm256_setzero_si256(), side);
      const __m256i magnitude = lookup64(_mm256_xor_si256(side, below));
      return _mm256_sub_epi8(_mm256_xor_si256(magnitude, below), below);
    }
  }
  // Looks up a table of 64: index bits 0-3 by a shuffle, 4 and 5 by selection.
  __attribute__((always_inline)) __m256i lookup64(__m256i index) const {
    const __m256i bit4 = _mm256_slli_epi16(index, 3), bit5 = _mm256_slli_epi16(index, 2);
    __m256i level[4];
    unroll<4>([&](auto i) __attribute__((always_inline)) {
      level[i] = _mm256_shuffle_epi8(parts_[i], index);
    });
    return _mm256_blendv_epi8(_mm256_blendv_epi8(level[0], level[1], bit4),
                              _mm256_blendv_epi8(level[2], level[3], bit4), bit5);
  }
  // Looks up a table of 128: index bits 0-3 by a shuffle, 4-6 by selection.
  __attribute__((always_inline)) __m256i lookup(__m256i index) const {
    const __m256i bit6 = _mm256_add_epi8(index, index), bit5 = _mm256_add_epi8(bit6, bit6);
    const __m256i bit4 = _mm256_add_epi8(bit5, bit5);
    __m256i level[8];
    unroll<8>([&](auto i) __attribute__((always_inline)) {
      level[i] = _mm256_shuffle_epi8(parts_[i], index);
    });
    unroll<4>([&](auto i) __attribute__((always_inline)) {
      level[i] = _mm256_blendv_epi8(level[2 * i], level[2 * i + 1], bit4);
    });
    unroll<2>([&](auto i) __attribute__((always_inline)) {
      level[i] = _mm256_blendv_epi8(level[2 * i], level[2 * i + 1], bit5);
    });
    return _mm256_blendv_epi8(level[0], level[1], bit6);
  }

  __m256i parts_[8];
};

template <HashRule kRule, int kBits, bool kFolded>
struct Product {
  static void run(const HashMatrix& w, const int8_t* x, int32_t* y) {
    const States<kBits> states;
    const Hash<kFolded> hash(w.code.multiplier);
    const Hash<false> second(w.code.second);
    const Levels<kRule> levels;
    int32_t zero = 0;
    for (int64_t i = 0; i < 16 * w.tiles; ++i)
      zero -= Levels<kRule>::kBias * x[i];
    const std::byte* tile = w.codes;
    for (int64_t row = 0; row < w.tile_rows; ++row) {
      __m256i sum[4] = {};
      for (int64_t t = 0; t < w.tiles; ++t, tile += 16 * kBits) {
        const Inputs in(x + 16 * t);
        unroll<4>([&](auto pair) __attribute__((always_inline)) {
          states.template decode<pair>(
              tile, [&](auto j, __m256i state) __attribute__((always_inline)) {
                __m256i low, high;
                hash.of(state, low, high);
                if constexpr (is_raw(kRule)) {
                  sum[pair] = levels.dot_raw(low, high, in, j, sum[pair]);
                  if constexpr (kRule == HashRule::raw4) {
                    second.of(state, low, high);
                    sum[pair] = levels.dot_raw(low, high, in, j, sum[pair]);
                  }
                } else {
                  sum[pair] = levels.dot(low, high, in, j, sum[pair]);
                }
              });
        });
      }
      for (int pair = 0; pair < 4; ++pair) {
        alignas(32) int32_t lanes[8];
        _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sum[pair]);
        for (int i = 0; i < 4; ++i) {  // half i / 2, rows g and g + 8
          const int lane = i / 2 * 4 + i % 2;
          y[16 * row + 2 * pair + i / 2 + 8 * (i % 2)] = zero + lanes[lane] + lanes[lane + 2];
        }
      }
    }
  }
};

}  // namespace

HashProduct hash_product_avx2(const HashMatrix& w) {
  return choose_hash_product<Product>(w);
}

}  // namespace walsh
