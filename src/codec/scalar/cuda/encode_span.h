// Encodes one pass over a span of one row: reads it, rotates it, finds the scales, assigns codes,
// packs them, and measures the error. It compiles for the device and the host (lane_math.h).
#pragma once

#include "codec/scalar/cuda/span_transform.h"
#include "codec/scalar/words.h"

namespace walsh::cuda::encoding {

// Returns the code of one element, and sets `value` to its decoded value.
template <GroupKind kKind, int kThresholds>
WALSH_LANE uint32_t assign(const PassArgs& args, const GroupFit& fit, float x, float& value) {
  if constexpr (kKind == GroupKind::absmax) {
    const float q = x * fit.assigned;
    if (args.bits == 8) {
      const float level = clamped(roundf(q), -127, 127);
      value = fit.scale * level + fit.offset;
      return static_cast<uint8_t>(static_cast<int8_t>(level));
    }
    const auto code = static_cast<uint8_t>(clamped(q + 8.5f, 0, 15));
    value = fit.scale * static_cast<float>(code - 8) + fit.offset;
    return code;
  } else {
    if (fit.zero) {
      value = fit.scale * args.levels.magnitude[0] + fit.offset;
      return args.levels.zero_code;
    }
    const float v = x * fit.factor - fit.shift;
    const float key = key_of(v);
    float level = args.levels.magnitude[0];
    int index = v > 0 ? 0 : 8;
    WALSH_UNROLL
    for (int k = 0; k < kThresholds; ++k) {
      const bool above = key > args.levels.midpoint[k] * fit.assigned;
      level = above ? args.levels.magnitude[k + 1] : level;
      index += above ? 1 : 0;
    }
    value = fit.scale * (v > 0 ? level : -level) + fit.offset;
    return static_cast<uint32_t>(args.levels.codes >> (4 * index)) & 15u;
  }
}

// Joins eight bytes, four per argument, to the nibbles 0..7 of a word.
WALSH_LANE uint32_t join_nibbles(uint32_t low, uint32_t high) {
  low |= low >> 4;
  high |= high >> 4;
  low = (low & 0xffu) | ((low >> 8) & 0xff00u);
  high = (high & 0xffu) | ((high >> 8) & 0xff00u);
  return low | high << 16;
}

// Packs 32 codes, given one per byte.
WALSH_LANE void pack_unit(int bits, const uint32_t (&bytes)[8], uint32_t* words) {
  scalar::with_width(bits, [&](auto width) {
    if constexpr (width == 8) {
      WALSH_UNROLL
      for (int j = 0; j < 8; ++j)
        words[j] = bytes[j];
    } else {
      uint32_t octets[4];
      WALSH_UNROLL
      for (int j = 0; j < 4; ++j)
        octets[j] = join_nibbles(bytes[2 * j], bytes[2 * j + 1]);
      scalar::join_octets<width>(octets, words);
    }
  });
}

struct alignas(16) UnitBytes {
  uint32_t words[8];
};

template <class Block>
WALSH_LANE void pack_span(const Block& block, const PassArgs& args, const SpanPlace& place,
                          const uint8_t* codes) {
  const int words = args.bits;  // A unit has this many words.
  for (int unit = block.thread(); unit * kUnit < place.columns; unit += block.threads()) {
    const UnitBytes in = *reinterpret_cast<const UnitBytes*>(codes + unit * kUnit);
    pack_unit(args.bits, in.words,
              args.codes + place.row * args.code_words + (place.begin / kUnit + unit) * words);
  }
}

struct alignas(8) EightCodes {
  uint8_t v[kEight];
};

// Sets `codes` to those of the span, and place.values to the decoded values, which are already
// transformed over distances 1 to 4.
template <class Block, GroupKind kKind, int kThresholds>
WALSH_LANE void assign_span(const Block& block, const PassArgs& args, const SpanPlace& place,
                            uint8_t* codes) {
  for (int c = kEight * block.thread(); c < place.columns; c += kEight * block.threads()) {
    const GroupFit fit = place.fits[c / fit_columns(kKind, args.span)];
    const EightFloats x = *reinterpret_cast<const EightFloats*>(place.values + c);
    float v[kEight];
    EightCodes out;
    WALSH_UNROLL
    for (int k = 0; k < kEight; ++k)
      out.v[k] = static_cast<uint8_t>(assign<kKind, kThresholds>(args, fit, x.v[k], v[k]));
    if (args.block != 0) transform_eight(v);
    store_eight(place.values + c, v);
    *reinterpret_cast<EightCodes*>(codes + c) = out;
  }
}

// Encodes a span; `index` counts the spans of all rows.
template <class Block, GroupKind kKind, int kThresholds>
WALSH_LANE void encode_span(const Block& block, const PassArgs& args, uint32_t index,
                            std::byte* memory) {
  const SpanLayout layout = span_layout(kKind, args.span);
  const auto spans = static_cast<uint32_t>(args.spans);
  SpanPlace place;
  place.row = index / spans;
  place.begin = int64_t{index % spans} * args.span;
  const int64_t left = args.padded - place.begin;
  place.columns = left < args.span ? static_cast<int>(left) : args.span;
  place.values = reinterpret_cast<float*>(memory + layout.values);
  place.doubles = reinterpret_cast<double*>(memory + layout.doubles);
  place.fits = reinterpret_cast<GroupFit*>(memory + layout.fits);
  auto* codes = reinterpret_cast<uint8_t*>(memory + layout.codes);

  const double norm = load_span(block, args, place);
  find_scales<Block, kKind, kThresholds>(block, args, place);
  block.sync();
  assign_span<Block, kKind, kThresholds>(block, args, place, codes);
  block.sync();
  pack_span(block, args, place, codes);
  const double error = finish_span(block, args, place);
  if (args.norms != nullptr) block.add_up(norm, args.norms + index);
  block.add_up(error, args.errors + index);
}

// Converts a span to a dense type, and refuses values that do not fit.
template <class Block>
WALSH_LANE void convert_span(const Block& block, const ConvertArgs& args, uint32_t index) {
  using Team = typename Block::Team;
  const auto spans = static_cast<uint32_t>(args.spans);
  const int64_t row = index / spans, begin = int64_t{index % spans} * kSpan;
  const int64_t cols = args.source.cols;
  double norm = 0, error = 0;
  for (int c = kEight * block.thread(); c < kSpan; c += kEight * block.threads()) {
    const int64_t column = begin + c;
    if (column >= cols) break;
    float x[kEight];
    read_eight<Block>(args.source, row, column, x);
    norm += check_eight<Block>(args.source, args.refusals, row, column, x);
    WALSH_UNROLL
    for (int k = 0; k < kEight; ++k) {
      if (column + k >= cols) continue;
      const int64_t at = row * cols + column + k;
      if (args.target == SourceType::f32) {
        static_cast<float*>(args.out)[at] = x[k];
        continue;
      }
      const bool half = args.target == SourceType::f16;
      const uint16_t bits = half ? Team::to_half(x[k]) : Team::to_bfloat(x[k]);
      static_cast<uint16_t*>(args.out)[at] = bits;
      const float back = half ? Team::from_half(bits) : Team::from_bfloat(bits);
      if (magnitude_of(back) == INFINITY) {
        refuse<Block>(args.refusals, kTooLarge, row, cols, column + k);
      }
      const float left = x[k] - back;
      error = fma(static_cast<double>(left), static_cast<double>(left), error);
    }
  }
  block.add_up(norm, args.norms + index);
  block.add_up(error, args.errors + index);
}

}  // namespace walsh::cuda::encoding
