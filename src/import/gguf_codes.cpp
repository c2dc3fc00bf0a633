#include "import/gguf_codes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "codec/tensor.h"
#include "import/ggml_blocks.h"
#include "import/ggml_codes.h"
#include "io/gguf_types.h"

namespace walsh {
namespace {

constexpr int kGroup = 32;  // weights per scale

// Type ids of ggml that have four bits and 32 weights per scale.
constexpr uint32_t kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ8_0 = 8, kQ4_K = 12, kIq4Nl = 20, kIq4Xs = 23,
                   kMxfp4 = 39;

// Levels of 4-bit codes in rising order, as GPU kernels want them: those below 8 are negative.
struct Levels {
  std::array<float, 16> exact{};
  std::array<int8_t, 16> integer{};

  explicit constexpr Levels(const std::array<int8_t, 16>& levels) : integer(levels) {
    for (size_t i = 0; i < levels.size(); ++i)
      exact[i] = levels[i];
  }
};

constexpr Levels kLinear({-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7});
constexpr Levels kCurve(kGgmlCurve);
// Twice the values of E2M1. Code 7 is free: there are two zeros.
constexpr Levels kFp4({-12, -8, -6, -4, -3, -2, -1, -1, 0, 1, 2, 3, 4, 6, 8, 12});

constexpr Format four_bits(std::string_view name, const Levels& levels, bool has_offset,
                           std::string_view note) {
  ScalarCode code;
  code.bits = 4;
  code.group = kGroup;
  code.has_offset = has_offset;
  code.levels = levels.exact.data();
  code.levels_i8 = levels.integer.data();
  Format format;
  format.name = name;
  format.kind = CodeKind::scalar;
  format.passes = 1;
  format.code[0] = code;
  format.note = note;
  return format;
}

// They are read and not written, so that the registry does not have them.
constexpr Format kWithOffset =
    four_bits("q4_1", kLinear, true, "Q4_1 and Q4_K of GGUF files: 4 bits, an offset per 32");
constexpr Format kCurved =
    four_bits("iq4_nl", kCurve, false, "IQ4_NL and IQ4_XS of GGUF files: 4 bits, curved levels");
constexpr Format kFloats = four_bits("mxfp4", kFp4, false, "MXFP4 of GGUF files: E2M1 per 32");

// One group as it is stored here.
struct Group {
  float scale = 0, offset = 0;
  uint8_t codes[kGroup];  // of 8 bits: int8
};

// The low nibbles of 16 bytes are the first half of a group, the high ones the second.
template <typename CodeOf>
void halves_of_nibbles(const uint8_t* nibbles, Group& group, const CodeOf& code_of) {
  for (int i = 0; i < 16; ++i) {
    group.codes[i] = code_of(nibbles[i] & 15);
    group.codes[i + 16] = code_of(nibbles[i] >> 4);
  }
}

uint8_t same(int code) {
  return static_cast<uint8_t>(code);
}

// Q4_0 and IQ4_NL: the codes mean different levels.
void read_scaled_nibbles(const uint8_t* b, Group* out) {
  out->scale = half_at(b);
  halves_of_nibbles(b + 2, *out, same);
}

// Codes count from 0 there and from -8 here.
void set_offset(float scale, float minimum, Group& out) {
  out.scale = scale;
  out.offset = minimum + 8 * scale;
}

void read_q4_1(const uint8_t* b, Group* out) {
  set_offset(half_at(b), half_at(b + 2), *out);
  halves_of_nibbles(b + 4, *out, same);
}

void read_q4_k(const uint8_t* b, Group* out) {
  const GgmlScalesAndMinima s(b);
  for (int k = 0; k < 8; ++k) {
    set_offset(s.scale[k], -s.minimum[k], out[k]);
    for (int i = 0; i < kGroup; ++i) {
      const uint8_t byte = b[16 + k / 2 * kGroup + i];
      out[k].codes[i] = k % 2 == 0 ? byte & 15 : byte >> 4;
    }
  }
}

void read_iq4_xs(const uint8_t* b, Group* out) {
  for (int k = 0; k < 8; ++k) {
    out[k].scale = ggml_iq4_xs_scale(b, k);
    halves_of_nibbles(b + 8 + 16 * k, out[k], same);
  }
}

// Sign and magnitude become a rank.
void read_mxfp4(const uint8_t* b, Group* out) {
  out->scale = ggml_e8m0_half(b[0]);
  halves_of_nibbles(b + 1, *out, [](int code) {
    const int magnitude = code & 7;
    return static_cast<uint8_t>(code < 8 || magnitude == 0 ? 8 + magnitude : 7 - magnitude);
  });
}

void read_q5_0(const uint8_t* b, Group* out) {
  out->scale = half_at(b);
  for (int i = 0; i < kGroup; ++i)
    out->codes[i] = static_cast<uint8_t>(ggml_five_bits(b + 2, b + 6, i) - 16);
}

void read_q8_0(const uint8_t* b, Group* out) {
  out->scale = half_at(b);
  std::memcpy(out->codes, b + 2, kGroup);
}

using GroupReader = void(const uint8_t* block, Group* groups);

// How a type becomes a format without rounding of codes; null: it does not.
GroupReader* exact_reader(uint32_t type, const Format& format) {
  switch (type) {
    case kQ4_0:
      return read_scaled_nibbles;
    case kQ4_1:
      return &format == &kWithOffset ? read_q4_1 : nullptr;
    case kQ4_K:
      return &format == &kWithOffset ? read_q4_k : nullptr;
    case kIq4Nl:
      return read_scaled_nibbles;
    case kIq4Xs:
      return read_iq4_xs;
    case kMxfp4:
      return read_mxfp4;
    case kQ5_0:
      return read_q5_0;
    case kQ8_0:
      return read_q8_0;
    default:
      return nullptr;
  }
}

// The nearest multiples of a scale that the largest value has as 127.
void round_group(const float* x, Group& out) {
  float largest = 0;
  for (int i = 0; i < kGroup; ++i)
    largest = std::fabs(x[i]) <= largest ? largest : std::fabs(x[i]);  // NaN stays
  out.scale = largest / 127;
  const float stored = f16_to_f32(f32_to_f16(out.scale));
  const float inverse = stored > 0 ? 1 / stored : 0;
  for (int i = 0; i < kGroup; ++i) {
    const float code = std::nearbyint(std::clamp(x[i] * inverse, -127.0f, 127.0f));
    out.codes[i] = static_cast<uint8_t>(static_cast<int8_t>(std::isfinite(code) ? code : 0));
  }
}

bool fits_half(float value) {
  return std::fabs(value) <= kLargestHalf;
}

}  // namespace

const Format* gguf_code_format(uint32_t type, GgufCodes codes) {
  const GgmlTypeInfo* info = ggml_type_info(type);
  if (codes == GgufCodes::drop || info == nullptr || info->block == 1) return nullptr;
  switch (type) {
    case kQ4_0:
      return &get_format("q4_0");
    case kIq4Nl:
    case kIq4Xs:
      return &kCurved;
    case kMxfp4:
      return &kFloats;
    case kQ4_1:
    case kQ4_K:
      if (codes == GgufCodes::keep) return &kWithOffset;
      break;
    default:
      break;
  }
  return &get_format("q8_0");
}

bool read_gguf_codes(uint32_t type, std::span<const std::byte> row, const Format& format,
                     std::span<float> values, std::byte* codes, uint16_t* scales,
                     uint16_t* offsets) {
  const ScalarCode& code = format.code[0];
  const GgmlTypeInfo& info = *ggml_type_info(type);
  GroupReader* const read = exact_reader(type, format);
  if (read == nullptr) decode_ggml(type, row, values.data());
  const int groups_of_block = static_cast<int>(info.block) / kGroup;
  const auto* block = reinterpret_cast<const uint8_t*>(row.data());
  bool fits = true;
  Group groups[8];
  for (size_t first = 0; first < values.size(); first += info.block, block += info.block_bytes) {
    if (read != nullptr) read(block, groups);
    for (int k = 0; k < groups_of_block; ++k) {
      Group& group = groups[k];
      if (read == nullptr) round_group(&values[first + static_cast<size_t>(k * kGroup)], group);
      fits = fits && fits_half(group.scale) && fits_half(group.offset);
      *scales++ = f32_to_f16(group.scale);
      if (code.has_offset) *offsets++ = f32_to_f16(group.offset);
      pack_codes(code, group.codes, kGroup, codes);
      codes += kGroup * code.bits / 8;
    }
  }
  return fits;
}

}  // namespace walsh
