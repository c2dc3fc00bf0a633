// Prototype products of int8 vectors with the candidates of hash_code.h, to measure what decoding
// costs. A matrix is [tile_rows][tiles] tiles of 16 x 16 in the layout of formats/trellis.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hash_code.h"

namespace walsh {

struct HashMatrix {
  HashCode code;
  const std::byte* codes = nullptr;  // 64 readable bytes beyond the end
  int64_t tile_rows = 0, tiles = 0;

  int64_t tile_bytes() const { return 16 * code.step_bits; }
  bool folded() const { return code.multiplier == folded_multiplier(code.multiplier); }
};

// y[16 * tile_rows] = exact sums of levels times x[16 * tiles].
using HashProduct = void (*)(const HashMatrix& w, const int8_t* x, int32_t* y);

// Null if there is no prototype.
HashProduct hash_product_avx2(const HashMatrix& w);
HashProduct hash_product_avx512vbmi(const HashMatrix& w);

// Unnamed, so that code for one instruction set is never merged with the same function for another.
namespace {

// The product for a rule and number of step bits known at run time.
template <template <HashRule, int, bool> class Product>
HashProduct choose_hash_product(const HashMatrix& w) {
  const auto with_bits = [&]<HashRule kRule>() -> HashProduct {
    const auto with_fold = [&]<int kBits>() -> HashProduct {
      if (w.folded()) return Product<kRule, kBits, true>::run;
      return Product<kRule, kBits, false>::run;
    };
    switch (w.code.step_bits) {
      case 4:
        return with_fold.template operator()<4>();
      case 5:
        return with_fold.template operator()<5>();
      case 6:
        return with_fold.template operator()<6>();
      case 7:
        return with_fold.template operator()<7>();
      case 8:
        return with_fold.template operator()<8>();
      default:
        return nullptr;
    }
  };
  switch (w.code.rule) {
    case HashRule::raw2:
      return with_bits.template operator()<HashRule::raw2>();
    case HashRule::raw4:
      return with_bits.template operator()<HashRule::raw4>();
    case HashRule::flat:
      return with_bits.template operator()<HashRule::flat>();
    case HashRule::bell:
      return with_bits.template operator()<HashRule::bell>();
    case HashRule::bits:
      return with_bits.template operator()<HashRule::bits>();
    case HashRule::fine:
      return with_bits.template operator()<HashRule::fine>();
    case HashRule::table7:
      return with_bits.template operator()<HashRule::table7>();
    case HashRule::table8:
      return with_bits.template operator()<HashRule::table8>();
  }
  return nullptr;
}

}  // namespace

}  // namespace walsh
