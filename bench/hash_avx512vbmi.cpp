// Products with VBMI. A byte permute brings windows of 64 bits to the eight row pairs of a tile, a
// multishift cuts four states of 16 bits out of each, multiplications hash 32 states at once, and
// the bytes of the hash are the operands of vpdpbusd or the indices of their table.
#include <immintrin.h>

#include <cstring>

#include "hash_kernels.h"
#include "kernels/unroll.h"

namespace walsh {
namespace {

using detail::unroll;

// The states of a tile. 64-bit lane g, word i of quad j: step 16 g + 4 j + i of the sequence, which
// is a pair of columns of quad j, of row g (i < 2) or g + 8.
template <int kBits>
class States {
  static constexpr int kTileBytes = 16 * kBits;
  // A window of eight steps (7 k + 16 bits) serves two quads, if it fits into a lane.
  static constexpr bool kPaired = kBits <= 6;
  static constexpr bool kWhole = kBits == 8;  // states are whole bytes: no shifts
  static constexpr int kSteps = kPaired ? 8 : 4;
  static constexpr int kPermutes = kPaired ? 2 : 4;

 public:
  States() {
    for (int p = 0; p < kPermutes; ++p) {
      alignas(64) uint8_t from[64];
      for (int g = 0; g < 8; ++g) {
        // Last step of the window, in its lowest bits.
        const int last = 16 * g + kSteps * (p + 1) - 1;
        for (int i = 0; i < 8; ++i) {
          const int byte =
              kWhole ? 127 - (16 * g + 4 * p + i / 2) + i % 2 : kBits * (127 - last) / 8 + i;
          from[8 * g + i] = static_cast<uint8_t>(byte % kTileBytes);
        }
      }
      from_[p] = _mm512_load_si512(from);
    }
    for (int q = 0; q < 2; ++q) {
      alignas(8) uint8_t shift[8];
      for (int i = 0; i < 4; ++i) {
        const int back = kPaired ? 7 - 4 * q - i : 3 - i;  // steps before the window's last
        const int begin = kPaired ? 0 : kBits * (127 - (4 * q + 3)) % 8;
        shift[2 * i] = static_cast<uint8_t>(begin + kBits * back);
        shift[2 * i + 1] = static_cast<uint8_t>(shift[2 * i] + 8);
      }
      long long all;
      std::memcpy(&all, shift, 8);
      shifts_[q] = _mm512_set1_epi64(all);
    }
  }

  // Calls emit(quad, states) for the four quads.
  template <typename Emit>
  __attribute__((always_inline)) void decode(const std::byte* tile, const Emit& emit) const {
    const __m512i a = _mm512_loadu_si512(tile);
    const __m512i b = kTileBytes > 64 ? _mm512_loadu_si512(tile + 64) : a;
    unroll<kPermutes>([&](auto p) __attribute__((always_inline)) {
      const __m512i window = kTileBytes > 64 ? _mm512_permutex2var_epi8(a, from_[p], b)
                                             : _mm512_permutexvar_epi8(from_[p], a);
      if constexpr (kWhole) {
        emit(p, window);
      } else if constexpr (kPaired) {
        unroll<2>([&](auto q) __attribute__((always_inline)) {
          emit(2 * p + q, _mm512_multishift_epi64_epi8(shifts_[q], window));
        });
      } else {
        emit(p, _mm512_multishift_epi64_epi8(shifts_[p % 2], window));
      }
    });
  }

 private:
  __m512i from_[kPermutes], shifts_[2];
};

// state * M in two registers of 16-bit lanes.
template <bool kFolded>
class Hash {
 public:
  explicit Hash(uint32_t multiplier)
      : low_(_mm512_set1_epi16(static_cast<short>(multiplier))),
        high_(_mm512_set1_epi16(static_cast<short>(multiplier >> 16))) {}
  __attribute__((always_inline)) void of(__m512i state, __m512i& low, __m512i& high) const {
    low = _mm512_mullo_epi16(state, low_);
    const __m512i more = kFolded ? low : _mm512_mullo_epi16(state, high_);
    high = _mm512_add_epi16(_mm512_mulhi_epu16(state, low_), more);
  }

 private:
  __m512i low_, high_;
};

template <HashRule kRule>
class Bytes {
 public:
  Bytes() {
    if constexpr (!is_one_byte(kRule)) return;
    alignas(64) uint8_t table[128];
    HashCode code{kRule, 6, 16, 1u << 16, 1};  // byte 2 is the state's lower byte
    for (uint32_t i = 0; i < 128; ++i) {
      const uint32_t state = kRule == HashRule::table8 ? i : i & 127u;
      table[i] = static_cast<uint8_t>(hash_level(code, state, 0) + level_bias(kRule));
    }
    for (int i = 0; i < 2; ++i)
      table_[i] = _mm512_load_si512(table + 64 * i);
  }
  // Level + bias of both values of 32 states.
  __attribute__((always_inline)) __m512i of(__m512i low, __m512i high) const {
    const auto bytes = [](int v) { return _mm512_set1_epi8(static_cast<char>(v)); };
    const auto masked = [&](__m512i a, int v) { return _mm512_and_si512(a, bytes(v)); };
    if constexpr (kRule == HashRule::flat) {
      return _mm512_add_epi8(masked(low, 0x7f), masked(high, 0x7f));
    } else if constexpr (kRule == HashRule::bell) {
      // (x + (x without its top bits)) / 2 halves the weight of the top bits.
      const auto count = [&](__m512i b) __attribute__((always_inline)) {
        const __m512i once = _mm512_avg_epu8(b, masked(b, 0x7f));
        return _mm512_avg_epu8(once, masked(once, 0x3f));
      };
      return _mm512_add_epi8(count(low), count(high));
    } else if constexpr (kRule == HashRule::table7) {
      return _mm512_permutex2var_epi8(table_[0], high, table_[1]);
    } else if constexpr (kRule == HashRule::table8) {  // antisymmetric
      const __mmask64 upper = _mm512_movepi8_mask(high);
      const __m512i folded = _mm512_mask_sub_epi8(high, upper, bytes(0xff), high);
      const __m512i level = _mm512_permutex2var_epi8(table_[0], folded, table_[1]);
      return _mm512_mask_sub_epi8(level, upper, _mm512_setzero_si512(), level);
    } else {  // the top bit has weight 16
      return _mm512_add_epi8(_mm512_permutex2var_epi8(table_[0], high, table_[1]),
                             masked(_mm512_srli_epi16(high, 3), 0x10));
    }
  }

 private:
  __m512i table_[2];
};

template <HashRule kRule, int kBits, bool kFolded>
struct Product {
  static void run(const HashMatrix& w, const int8_t* x, int32_t* y) {
    const States<kBits> states;
    const Hash<kFolded> hash(w.code.multiplier);
    const Hash<false> second(w.code.second);
    const Bytes<kRule> levels;
    int32_t zero = 0;
    for (int64_t i = 0; i < 16 * w.tiles; ++i)
      zero -= level_bias(kRule) * x[i];
    const std::byte* tile = w.codes;
    for (int64_t row = 0; row < w.tile_rows; ++row) {
      __m512i sum[4] = {_mm512_set1_epi32(zero)};
      for (int64_t t = 0; t < w.tiles; ++t, tile += 16 * kBits) {
        states.decode(
            tile, [&](auto quad, __m512i state) __attribute__((always_inline)) {
              int32_t four;
              std::memcpy(&four, x + 16 * t + 4 * quad, 4);
              const __m512i v = _mm512_set1_epi32(four);
              __m512i low, high;
              hash.of(state, low, high);
              __m512i& s = sum[quad];
              if constexpr (is_raw(kRule)) {
                s = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(s, low, v), high, v);
                if constexpr (kRule == HashRule::raw4) {
                  second.of(state, low, high);
                  s = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(s, low, v), high, v);
                }
              } else {
                s = _mm512_dpbusd_epi32(s, levels.of(low, high), v);
              }
            });
      }
      alignas(64) int32_t lanes[16];
      _mm512_store_si512(lanes, _mm512_add_epi32(_mm512_add_epi32(sum[0], sum[1]),
                                                 _mm512_add_epi32(sum[2], sum[3])));
      for (int lane = 0; lane < 16; ++lane)
        y[16 * row + lane / 2 + 8 * (lane % 2)] = lanes[lane];
    }
  }
};

}  // namespace

HashProduct hash_product_avx512vbmi(const HashMatrix& w) {
  return choose_hash_product<Product>(w);
}

}  // namespace walsh
