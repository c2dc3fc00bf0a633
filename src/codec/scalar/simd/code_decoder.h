// Unpacks one unit (32 columns) of panel codes to bytes by table lookup.
//
// `Arch` is the instruction set: type Ints (a vector of 32-bit lanes, one row each), load,
// shift_right<n> and shift_left<n> of 16-bit parts, masked(mask byte, a), add of bytes,
// select(mask byte, a, b) = bits of a where the mask is 1, else of b, plain(bytes) for 8-bit codes,
// kBias added to every level, and a class Table of 16 bytes that looks up the low half of every
// byte of an index.
#pragma once

#include <cstdint>

#include "base/unroll.h"
#include "codec/panels.h"
#include "codec/scalar/words.h"

namespace walsh::detail {

// Returns the table for a field of a nibble, in which entry i is levels[code_of(i)] + bias.
template <class Arch, typename CodeOf>
typename Arch::Table nibble_table(const int8_t* levels, CodeOf code_of) {
  alignas(16) uint8_t table[16];
  for (int i = 0; i < 16; ++i)
    table[i] = static_cast<uint8_t>(levels[code_of(i)] + Arch::kBias);
  return typename Arch::Table(table);
}

// Declares the decoders. decode(words, emit) calls emit(Quad<n>, weights) for quads 0..7 of a unit
// in any order; a 32-bit lane of `weights` holds columns 4 n .. 4 n + 3 of one row. `words` points
// to the first lane of the unit.
template <int Bits, class Arch>
class CodeDecoder;

template <class Arch>
class CodeDecoder<4, Arch> {
 public:
  explicit CodeDecoder(const int8_t* levels)
      : table_(nibble_table<Arch>(levels, [](int i) { return i; })) {}

  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, const Emit& emit) const {
    unroll<4>([&](auto j) WALSH_INLINE {
      const auto word = Arch::load(words + kPanelRows * j);
      emit(Quad<2 * j>{}, table_(word));
      emit(Quad<2 * j + 1>{}, table_(Arch::template shift_right<4>(word)));
    });
  }

 private:
  typename Arch::Table table_;
};

// Returns the code in a nibble of the gathered word. The fourth word of 3-bit codes is gathered
// from the top bits of the other three's nibbles, with bit 0 of a code in bit 3 of its nibble, bit
// 1 in bit 2 and bit 2 in bit 1. That order needs one operation less than the natural one, and a
// table undoes it.
inline int gathered_code(int nibble) {
  return (nibble >> 3 & 1) | (nibble >> 1 & 2) | (nibble << 1 & 4);
}
template <class Arch, typename Ints>
WALSH_INLINE inline Ints gather_fourth(Ints w0, Ints w1, Ints w2) {
  const Ints low = Arch::select(0x88, w0, Arch::template shift_right<1>(w1));
  return Arch::select(0x22, Arch::template shift_right<2>(w2), low);
}

template <class Arch>
class CodeDecoder<3, Arch> {
 public:
  explicit CodeDecoder(const int8_t* levels)
      : table_(nibble_table<Arch>(levels, [](int i) { return i & 7; })),
        gathered_(nibble_table<Arch>(levels, gathered_code)) {}

  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, const Emit& emit) const {
    const auto w0 = Arch::load(words);
    const auto w1 = Arch::load(words + kPanelRows);
    const auto w2 = Arch::load(words + 2 * kPanelRows);
    emit(Quad<0>{}, table_(w0));
    emit(Quad<1>{}, table_(Arch::template shift_right<4>(w0)));
    emit(Quad<2>{}, table_(w1));
    emit(Quad<3>{}, table_(Arch::template shift_right<4>(w1)));
    emit(Quad<4>{}, table_(w2));
    emit(Quad<5>{}, table_(Arch::template shift_right<4>(w2)));
    const auto w3 = gather_fourth<Arch>(w0, w1, w2);
    emit(Quad<6>{}, gathered_(w3));
    emit(Quad<7>{}, gathered_(Arch::template shift_right<4>(w3)));
  }

 private:
  typename Arch::Table table_, gathered_;
};

template <class Arch>
class CodeDecoder<2, Arch> {
 public:
  explicit CodeDecoder(const int8_t* levels)
      : low_(nibble_table<Arch>(levels, [](int i) { return i & 3; })),
        high_(nibble_table<Arch>(levels, [](int i) { return i >> 2; })) {}

  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, const Emit& emit) const {
    unroll<2>([&](auto j) WALSH_INLINE {
      const auto even = Arch::load(words + kPanelRows * j);
      const auto odd = Arch::template shift_right<4>(even);
      emit(Quad<4 * j>{}, low_(even));
      emit(Quad<4 * j + 1>{}, low_(odd));
      emit(Quad<4 * j + 2>{}, high_(even));
      emit(Quad<4 * j + 3>{}, high_(odd));
    });
  }

 private:
  typename Arch::Table low_, high_;
};

// Decodes codes of more than four bits whose levels are equidistant: level[code + 16] = level[code]
// + 16.
template <int Bits, class Arch>
class WideCodeDecoder {
 public:
  explicit WideCodeDecoder(const int8_t* levels)
      : table_(nibble_table<Arch>(levels, [](int i) { return i; })) {}

  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, const Emit& emit) const {
    constexpr int kMask = Bits == 5 ? 0x10 : 0x30;
    unroll<4>([&](auto t) WALSH_INLINE {
      constexpr int kShift = scalar::upper_shift<Bits>(t);
      const auto word = Arch::load(words + kPanelRows * t);
      const auto upper = Arch::load(words + kPanelRows * scalar::upper_word<Bits>(t));
      const auto even = Arch::masked(kMask, Arch::template shift_left<4 - kShift>(upper));
      const auto odd = Arch::masked(kMask, Arch::template shift_right<kShift>(upper));
      emit(Quad<2 * t>{}, Arch::add(table_(word), even));
      emit(Quad<2 * t + 1>{}, Arch::add(table_(Arch::template shift_right<4>(word)), odd));
    });
  }

 private:
  typename Arch::Table table_;
};

template <class Arch>
class CodeDecoder<5, Arch> : public WideCodeDecoder<5, Arch> {
  using WideCodeDecoder<5, Arch>::WideCodeDecoder;
};
template <class Arch>
class CodeDecoder<6, Arch> : public WideCodeDecoder<6, Arch> {
  using WideCodeDecoder<6, Arch>::WideCodeDecoder;
};

template <class Arch>
class CodeDecoder<8, Arch> {
 public:
  explicit CodeDecoder(const int8_t*) {}

  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, const Emit& emit) const {
    unroll<8>([&](auto quad)
                  WALSH_INLINE { emit(quad, Arch::plain(Arch::load(words + kPanelRows * quad))); });
  }
};

}  // namespace walsh::detail
