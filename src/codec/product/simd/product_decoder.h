// Decodes one unit (32 columns) of a panel of product codes by gathering whole entries. The four
// vectors of 16 columns of a row are a 4 x 4 matrix of bytes, which is transposed so that four
// consecutive columns lie in a lane.
//
// `Arch` is the instruction set: type Ints of kLanes 32-bit lanes, kBias added to every level,
// load, gather<v>(table, pointers) (in lane r the entry of byte 4r + v of `pointers`),
// rotate_left<n> of lanes, select<mask of a lane>(a, b) = bits of a where the mask is 1, else of b,
// and subtract_where<bit>(levels, signs, amount), which subtracts from the bytes whose sign has the
// bit.
#pragma once

#include <cstdint>

#include "base/unroll.h"
#include "codec/product/panels.h"

namespace walsh::detail {

template <class Arch>
class GatherProductDecoder {
 public:
  using Ints = typename Arch::Ints;

  explicit GatherProductDecoder(const PanelMatrix& w)
      : twice_(Arch::set8(2 * w.product->residual)) {
    for (int i = 0; i < kCodebookBytes; ++i)
      entries_[i] = static_cast<uint8_t>(w.codebook.data()[i] + Arch::kBias);
  }

  // Calls emit(Quad<n>, weights) for quads 0..7 of the unit, for the lanes of the panel from `lane`
  // on.
  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, int lane, const Emit& emit) const {
    const Ints signs = Arch::load(words + 2 * kPanelRows + lane);
    unroll<2>([&](auto half) WALSH_INLINE {
      const auto* pointers = reinterpret_cast<const uint8_t*>(words + half * kPanelRows + lane);
      transpose(pointers, [&](auto value, Ints levels) WALSH_INLINE {
        constexpr int kQuad = 4 * half + value;
        emit(Quad<kQuad>{}, Arch::template subtract_where<(1 << kQuad)>(levels, signs, twice_));
      });
    });
  }

 private:
  // Transposes the four vectors. Vector v, rotated by v bytes, has its weight i in byte i + v (mod
  // 4), so the bytes of weight i of the four vectors are at four different places and can be
  // merged. Rotating by i then puts them in order.
  template <typename Emit>
  WALSH_INLINE void transpose(const uint8_t* pointers, const Emit& emit) const {
    const Ints v0 = Arch::template gather<0>(entries_, pointers);
    const Ints v1 = Arch::template rotate_left<8>(Arch::template gather<1>(entries_, pointers));
    const Ints v2 = Arch::template rotate_left<16>(Arch::template gather<2>(entries_, pointers));
    const Ints v3 = Arch::template rotate_left<24>(Arch::template gather<3>(entries_, pointers));
    constexpr uint32_t kLow = 0x0000ffff, kMiddle = 0x00ffff00, kEven = 0x00ff00ff;
    const Ints a = Arch::template select<kLow>(v0, v2);
    const Ints b = Arch::template select<kLow>(v2, v0);
    const Ints c = Arch::template select<kMiddle>(v1, v3);
    const Ints d = Arch::template select<kMiddle>(v3, v1);
    emit(std::integral_constant<int, 0>{}, Arch::template select<kEven>(a, c));
    emit(std::integral_constant<int, 1>{},
         Arch::template rotate_left<24>(Arch::template select<kEven>(c, a)));
    emit(std::integral_constant<int, 2>{},
         Arch::template rotate_left<16>(Arch::template select<kEven>(b, d)));
    emit(std::integral_constant<int, 3>{},
         Arch::template rotate_left<8>(Arch::template select<kEven>(d, b)));
  }

  alignas(64) uint8_t entries_[kCodebookBytes];
  Ints twice_;
};

}  // namespace walsh::detail
