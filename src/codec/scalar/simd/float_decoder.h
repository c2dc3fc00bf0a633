// Decodes one unit (32 columns) of panel codes to floats by table lookup, for `Arch` as
// kernels/simd/matmul_f32.h describes it.
#pragma once

#include "codec/scalar/panels.h"
#include "codec/scalar/simd/code_decoder.h"

namespace walsh::detail {

// Holds tables with the levels of the low field of a nibble, and of the second field (2 bits), the
// gathered word (3 bits) or the bits above a nibble (5 and 6 bits), which add multiples of 16.
template <class Arch>
struct FloatTables {
  typename Arch::Table first, second;

  // `code` is null for a trellis, which needs no table.
  explicit FloatTables(const ScalarCode* code)
      : first(levels(code, [&](int i) { return i & ((1 << code->bits) - 1); })),
        second(code && (code->bits == 5 || code->bits == 6)
                   ? sixteens(code->bits)
                   : levels(code,
                            [&](int i) { return code->bits == 2 ? i >> 2 : gathered_code(i); })) {}

  template <typename CodeOf>
  static typename Arch::Table levels(const ScalarCode* code, const CodeOf& code_of) {
    alignas(64) float table[16] = {};
    for (int i = 0; i < 16 && code && code->bits != 8; ++i)
      table[i] = code->levels[code_of(i) & ((1 << code->bits) - 1)];
    return typename Arch::Table(table);
  }
  static typename Arch::Table sixteens(int bits) {
    alignas(64) float table[16];
    for (int i = 0; i < 16; ++i)
      table[i] = static_cast<float>(16 * (i & ((1 << (bits - 4)) - 1)));
    return typename Arch::Table(table);
  }
};

// Decodes one unit, calling emit(column, level) for columns 0..31 in any order.
template <int Bits, class Arch, typename Emit>
WALSH_INLINE inline void decode_floats(const FloatTables<Arch>& tables, const uint32_t* words,
                                       const Emit& emit) {
  using Ints = typename Arch::Ints;
  if constexpr (Bits == 8) {
    unroll<32>([&](auto c) WALSH_INLINE {
      emit(c, Arch::template byte<c % 4>(Arch::load_words(words + c / 4 * kPanelRows)));
    });
  } else if constexpr (Bits > 4) {
    unroll<4>([&](auto t) WALSH_INLINE {
      const Ints word = Arch::load_words(words + t * kPanelRows);
      const Ints upper = Arch::load_words(words + scalar::upper_word<Bits>(t) * kPanelRows);
      unroll<8>([&](auto p) WALSH_INLINE {
        constexpr int kShift = nibble_shift(p);
        emit(t * 8 + p,
             Arch::add(
                 tables.first(Arch::template shift_right<kShift>(word)),
                 tables.second(
                     Arch::template shift_right<kShift + scalar::upper_shift<Bits>(t)>(upper))));
      });
    });
  } else {
    unroll<Bits>([&](auto j) WALSH_INLINE {
      const Ints word = Arch::load_words(words + j * kPanelRows);
      unroll<8>([&](auto p) WALSH_INLINE {
        const Ints nibble = Arch::template shift_right<nibble_shift(p)>(word);
        emit(j * (Bits == 2 ? 16 : 8) + p, tables.first(nibble));
        if constexpr (Bits == 2) emit(j * 16 + 8 + p, tables.second(nibble));
      });
    });
  }
  if constexpr (Bits == 3) {
    const Ints word =
        gather_fourth<Arch>(Arch::load_words(words), Arch::load_words(words + kPanelRows),
                            Arch::load_words(words + 2 * kPanelRows));
    unroll<8>([&](auto p) WALSH_INLINE {
      emit(24 + p, tables.second(Arch::template shift_right<nibble_shift(p)>(word)));
    });
  }
}

}  // namespace walsh::detail
