// The codes of a step's products, as far as they are known when a kernel is compiled: one code for
// all products, or several, and then each product of a phase says which it has.
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
  // The k-tile for inputs in the doubled order (ProgramPhase::doubled), which only trellis codes
  // read.
  using Doubled = KTileDot<Decoder, Flush, 0, KTilePlaces<Decoder::kVectors, Flush, true>>;
  static constexpr bool kDoubles = Doubled::kDoubled;
};

// All k-tiles take as much room as the largest one. Flush is 32 if codes of both kinds occur, and
// 128 if all have it.
template <int Flush, typename... Decoders>
struct SeveralCodes {
  static constexpr bool kSeveral = true, kDoubles = false;
  static constexpr bool kExperts = false, kMixers = false;
  static constexpr int kVectors = std::max({Decoders::kVectors...});
  static constexpr ProgramMemory kMemory = program_memory(kVectors, Flush);

  template <typename Decoder, int F>
  using KTileOf = KTileDot<Decoder, F, 0, KTilePlaces<kVectors, Flush>>;
  // Used for what is the same for all codes.
  using KTile = KTileOf<std::tuple_element_t<0, std::tuple<Decoders...>>, Flush>;

  // Calls body.operator()<KTile>() with the k-tile of a code.
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

struct NarrowCodes : SeveralCodes<128, ScalarDecoder<2>, ScalarDecoder<3>, ScalarDecoder<4>> {};
struct WideCodes
    : SeveralCodes<32, ScalarDecoder<2>, ScalarDecoder<3>, ScalarDecoder<4>, ScalarDecoder<8>> {};
struct TrellisCodes
    : SeveralCodes<128, ScalarDecoder<2>, ScalarDecoder<3>, ScalarDecoder<4>, TrellisDecoder<4>,
                   TrellisDecoder<5>, TrellisDecoder<6>, TrellisDecoder<7>, TrellisDecoder<8>> {};
static_assert(NarrowCodes::kMemory == program_memory_of_several(false));
static_assert(TrellisCodes::kMemory == program_memory_of_several(false));
static_assert(WideCodes::kMemory == program_memory_of_several(true));

// The same codes in programs with experts. These have kernels of their own, so that the kernels of
// models without experts do not become longer.
template <typename Codes>
struct WithExperts : Codes {
  static constexpr bool kExperts = true;
};

// The same for programs with other mixers than attention of whole heads: delta nets, and attention
// with gates, with partly rotated heads or with heads of 256 values.
template <typename Codes>
struct WithMixers : Codes {
  static constexpr bool kMixers = true;
};

}  // namespace walsh::cuda
