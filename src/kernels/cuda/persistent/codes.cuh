// The codes of a step's products, as far as they are known when a kernel is compiled: one for all
// of them, or several, of which every product of a phase has its own.
#pragma once

#include <algorithm>
#include <tuple>

#include "kernels/cuda/gemv/k_tile_dot.cuh"
#include "kernels/cuda/persistent/phase.h"

namespace walsh::cuda {

template <typename Decoder, int Flush>
struct OneCode {
  static constexpr bool kSeveral = false;
  static constexpr bool kExperts = false, kMixers = false;
  static constexpr ProgramMemory kMemory = program_memory(Decoder::kVectors, Flush);
  using KTile = KTileDot<Decoder, Flush, 0>;
  // Of inputs that stand doubled (ProgramPhase::doubled), which only trellis codes know.
  using Doubled = KTileDot<Decoder, Flush, 0, KTilePlaces<Decoder::kVectors, Flush, true>>;
  static constexpr bool kDoubles = Doubled::kDoubled;
};

// All k-tiles have the places of the largest. Flush: 32 for codes of both kinds, 128 if there are
// only such.
template <int Flush, typename... Decoders>
struct SeveralCodes {
  static constexpr bool kSeveral = true, kDoubles = false;
  static constexpr bool kExperts = false, kMixers = false;
  static constexpr int kVectors = std::max({Decoders::kVectors...});
  static constexpr ProgramMemory kMemory = program_memory(kVectors, Flush);

  template <typename Decoder, int F>
  using KTileOf = KTileDot<Decoder, F, 0, KTilePlaces<kVectors, Flush>>;
  // For what is the same for all.
  using KTile = KTileOf<std::tuple_element_t<0, std::tuple<Decoders...>>, Flush>;

  // body.operator()<KTile>() with the k-tile of a code.
  template <typename Body>
  static __device__ __forceinline__ void with_k_tile(const PhaseCode& code, const Body& body) {
    if (Flush == 32 && code.flush == 32) {
      select<32>(code, body);
    } else {
      select<128>(code, body);
    }
  }

 private:
  template <int F, typename Body>
  static __device__ __forceinline__ void select(const PhaseCode& code, const Body& body) {
    ((code.decoder == Decoders::kKind ? (body.template operator()<KTileOf<Decoders, F>>(), true)
                                      : false) ||
     ...);
  }
};

// The same codes in programs with experts, whose kernels are others so that those of models without
// any are not longer for them.
template <typename Codes>
struct WithExperts : Codes {
  static constexpr bool kExperts = true;
};

// The same for other mixers than attention of whole heads: delta nets, and attention whose heads
// have gates, of whose heads a part is rotated, or whose heads have 256 values.
template <typename Codes>
struct WithMixers : Codes {
  static constexpr bool kMixers = true;
};

}  // namespace walsh::cuda
