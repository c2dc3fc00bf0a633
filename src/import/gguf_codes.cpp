#include "import/gguf_codes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "codec/tensor.h"
#include "import/ggml_blocks.h"
#include "import/ggml_codes.h"
#include "io/gguf_types.h"

namespace walsh {
namespace {

// These are ggml's ids of types.
constexpr uint32_t kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ5_1 = 7, kQ8_0 = 8, kQ2_K = 10, kQ3_K = 11,
                   kQ4_K = 12, kQ5_K = 13, kQ6_K = 14, kIq4Nl = 20, kIq4Xs = 23, kMxfp4 = 39;

constexpr int kMostWeights = 256;  // a block has at most this many weights

// Levels have rising order, because GPU kernels need that. They also need 4-bit codes below 8 to be
// negative.
template <size_t Count>
struct Levels {
  std::array<float, Count> exact{};
  std::array<int8_t, Count> integer{};

  explicit constexpr Levels(const std::array<int8_t, Count>& levels) : integer(levels) {
    for (size_t i = 0; i < levels.size(); ++i)
      exact[i] = levels[i];
  }
};

// Returns the whole numbers from `first` on.
template <size_t Count>
constexpr Levels<Count> equidistant(int first) {
  std::array<int8_t, Count> levels{};
  for (size_t i = 0; i < Count; ++i)
    levels[i] = static_cast<int8_t>(first + static_cast<int>(i));
  return Levels<Count>(levels);
}

constexpr Levels kTwoBits = equidistant<4>(0);
constexpr Levels kThreeBits = equidistant<8>(-4);
constexpr Levels kFourBits = equidistant<16>(-8);
constexpr Levels kFiveBits = equidistant<32>(-16);
constexpr Levels kSixBits = equidistant<64>(-32);
constexpr Levels kCurve(kGgmlCurve);
// These are twice the values of E2M1. It has two zeros, so code 7 of the 16 is free.
constexpr Levels kFp4(std::array<int8_t, 16>{-12, -8, -6, -4, -3, -2, -1, -1, 0, 1, 2, 3, 4, 6, 8,
                                             12});

template <size_t Count>
constexpr Format with_levels(std::string_view name, const Levels<Count>& levels, int group,
                             bool has_offset, std::string_view note) {
  ScalarCode code;
  code.bits = std::countr_zero(Count);
  code.group = group;
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

// These formats are read and not written, so the registry does not have them.
constexpr Format kQ2K = with_levels("q2_k", kTwoBits, 16, true, "Q2_K of GGUF files"),
                 kQ3K = with_levels("q3_k", kThreeBits, 16, false, "Q3_K of GGUF files"),
                 kQ4Offset =
                     with_levels("q4_1", kFourBits, 32, true, "Q4_1 and Q4_K of GGUF files"),
                 kQ5 = with_levels("q5_0", kFiveBits, 32, false, "Q5_0 of GGUF files"),
                 kQ5Offset =
                     with_levels("q5_1", kFiveBits, 32, true, "Q5_1 and Q5_K of GGUF files"),
                 kQ6K = with_levels("q6_k", kSixBits, 16, false, "Q6_K of GGUF files"),
                 kCurved = with_levels("iq4_nl", kCurve, 32, false,
                                       "IQ4_NL and IQ4_XS of GGUF files: curved levels"),
                 kFloats = with_levels("mxfp4", kFp4, 32, false, "MXFP4 of GGUF files: E2M1");

// Holds the codes of one block, and the scales and offsets of its groups.
struct Block {
  float scale[16], offset[16];
  uint8_t codes[kMostWeights];  // codes of 8 bits are int8
};

// Writes 32 codes from nibbles. The low nibbles of 16 bytes are the first half of them, the high
// ones the second.
template <typename CodeOf>
void halves_of_nibbles(const uint8_t* nibbles, uint8_t* codes, const CodeOf& code_of) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = code_of(nibbles[i] & 15);
    codes[i + 16] = code_of(nibbles[i] >> 4);
  }
}

uint8_t same(int code) {
  return static_cast<uint8_t>(code);
}

// Reads Q4_0 and IQ4_NL, whose codes mean different levels.
void read_scaled_nibbles(const uint8_t* b, Block& out) {
  out.scale[0] = half_at(b);
  halves_of_nibbles(b + 2, out.codes, same);
}

// Sets the scale and the offset of a group. Its codes count from 0 in the file and from `first`
// here.
void set_offset(int first, float scale, float minimum, int group, Block& out) {
  out.scale[group] = scale;
  out.offset[group] = minimum - static_cast<float>(first) * scale;
}

void read_q4_1(const uint8_t* b, Block& out) {
  set_offset(-8, half_at(b), half_at(b + 2), 0, out);
  halves_of_nibbles(b + 4, out.codes, same);
}

// Sets the scales and offsets of a block of Q4_K or Q5_K.
void set_offsets(int first, const uint8_t* b, Block& out) {
  const GgmlScalesAndMinima s(b);
  for (int k = 0; k < 8; ++k)
    set_offset(first, s.scale[k], -s.minimum[k], k, out);
}

void read_q4_k(const uint8_t* b, Block& out) {
  set_offsets(-8, b, out);
  for (int i = 0; i < 256; ++i)
    out.codes[i] = same(ggml_nibble(b + 16, i));
}

void read_q5_1(const uint8_t* b, Block& out) {
  set_offset(-16, half_at(b), half_at(b + 2), 0, out);
  for (int i = 0; i < 32; ++i)
    out.codes[i] = same(ggml_five_bits(b + 4, b + 8, i));
}

void read_q5_k(const uint8_t* b, Block& out) {
  set_offsets(-16, b, out);
  for (int i = 0; i < 256; ++i)
    out.codes[i] = same(ggml_q5_k_code(b, i));
}

void read_q2_k(const uint8_t* b, Block& out) {
  const float d = half_at(b + 80), dmin = half_at(b + 82);
  for (int k = 0; k < 16; ++k)
    set_offset(0, d * static_cast<float>(b[k] & 15), -dmin * static_cast<float>(b[k] >> 4), k, out);
  for (int i = 0; i < 256; ++i)
    out.codes[i] = same(ggml_two_bits(b + 16, i));
}

void read_q3_k(const uint8_t* b, Block& out) {
  for (int k = 0; k < 16; ++k)
    out.scale[k] = ggml_q3_k_scale(b, k);
  for (int i = 0; i < 256; ++i)
    out.codes[i] = same(ggml_q3_k_level(b, i) + 4);
}

void read_q6_k(const uint8_t* b, Block& out) {
  const float d = half_at(b + 208);
  for (int k = 0; k < 16; ++k)
    out.scale[k] = d * static_cast<float>(static_cast<int8_t>(b[192 + k]));
  for (int i = 0; i < 256; ++i)
    out.codes[i] = same(ggml_q6_k_code(b, i));
}

void read_iq4_xs(const uint8_t* b, Block& out) {
  for (int k = 0; k < 8; ++k) {
    out.scale[k] = ggml_iq4_xs_scale(b, k);
    halves_of_nibbles(b + 8 + 16 * k, out.codes + 32 * k, same);
  }
}

// Reads MXFP4, whose codes of sign and magnitude become ranks of levels.
void read_mxfp4(const uint8_t* b, Block& out) {
  out.scale[0] = ggml_e8m0_half(b[0]);
  halves_of_nibbles(b + 1, out.codes, [](int code) {
    const int magnitude = code & 7;
    return static_cast<uint8_t>(code < 8 || magnitude == 0 ? 8 + magnitude : 7 - magnitude);
  });
}

// Reads Q5_0, whose codes become numbers of 5 bits or, if Signed, int8.
template <bool Signed>
void read_q5_0(const uint8_t* b, Block& out) {
  out.scale[0] = half_at(b);
  for (int i = 0; i < 32; ++i)
    out.codes[i] = same(ggml_five_bits(b + 2, b + 6, i) - (Signed ? 16 : 0));
}

void read_q8_0(const uint8_t* b, Block& out) {
  out.scale[0] = half_at(b);
  std::memcpy(out.codes, b + 2, 32);
}

using BlockReader = void(const uint8_t* block, Block& out);

// Tells which format a type becomes if the codes of the file are kept.
struct Exact {
  uint32_t type;
  const Format* format;  // null means q4_0 or q8_0
  BlockReader* read;
  bool on_gpus = false;  // GPU kernels take the format
};
constexpr Exact kExact[] = {
    {kQ4_0, nullptr, read_scaled_nibbles, true},
    {kQ4_1, &kQ4Offset, read_q4_1},
    {kQ5_0, &kQ5, read_q5_0<false>},
    {kQ5_1, &kQ5Offset, read_q5_1},
    {kQ8_0, nullptr, read_q8_0, true},
    {kQ2_K, &kQ2K, read_q2_k},
    {kQ3_K, &kQ3K, read_q3_k},
    {kQ4_K, &kQ4Offset, read_q4_k},
    {kQ5_K, &kQ5Offset, read_q5_k},
    {kQ6_K, &kQ6K, read_q6_k},
    {kIq4Nl, &kCurved, read_scaled_nibbles, true},
    {kIq4Xs, &kCurved, read_iq4_xs, true},
    {kMxfp4, &kFloats, read_mxfp4, true},
};

const Exact* find_exact(uint32_t type) {
  const auto* row =
      std::find_if(std::begin(kExact), std::end(kExact), [&](auto& r) { return r.type == type; });
  return row == std::end(kExact) ? nullptr : row;
}

// Returns the reader that makes codes of the format from a type without rounding, or null if there
// is none.
BlockReader* exact_reader(uint32_t type, const Format& format) {
  const Exact* row = find_exact(type);
  const bool to_int8 = format.code[0].bits == 8;
  if (type == kQ5_0 && to_int8) return read_q5_0<true>;
  if (row == nullptr || (to_int8 && type != kQ8_0)) return nullptr;
  return row->read;
}

// Rounds a group to multiples of a scale; the largest value becomes 127 times the scale.
void round_group(const float* x, float& scale, uint8_t* codes) {
  constexpr int kGroup = 32;
  float largest = 0;
  for (int i = 0; i < kGroup; ++i)
    largest = std::fabs(x[i]) <= largest ? largest : std::fabs(x[i]);  // NaN stays
  scale = largest / 127;
  const float stored = f16_to_f32(f32_to_f16(scale));
  const float inverse = stored > 0 ? 1 / stored : 0;
  for (int i = 0; i < kGroup; ++i) {
    const float code = std::nearbyint(std::clamp(x[i] * inverse, -127.0f, 127.0f));
    codes[i] = static_cast<uint8_t>(static_cast<int8_t>(std::isfinite(code) ? code : 0));
  }
}

bool fits_half(float value) {
  return std::fabs(value) <= kLargestHalf;
}

}  // namespace

const Format* gguf_code_format(uint32_t type, GgufCodes codes) {
  const GgmlTypeInfo* info = ggml_type_info(type);
  if (codes == GgufCodes::drop || info == nullptr || info->block == 1) return nullptr;
  const Exact* row = find_exact(type);
  if (row == nullptr || (codes == GgufCodes::symmetric && !row->on_gpus))
    return &get_format("q8_0");
  if (row->format != nullptr) return row->format;
  return &get_format(type == kQ4_0 ? "q4_0" : "q8_0");
}

bool read_gguf_codes(uint32_t type, std::span<const std::byte> row, const Format& format,
                     std::span<float> values, std::byte* codes, uint16_t* scales,
                     uint16_t* offsets) {
  const ScalarCode& code = format.code[0];
  const GgmlTypeInfo& info = *ggml_type_info(type);
  const auto weights = static_cast<int>(info.block);
  BlockReader* const read = exact_reader(type, format);
  if (read == nullptr) decode_ggml(type, row, values.data());
  const auto* b = reinterpret_cast<const uint8_t*>(row.data());
  bool fits = true;
  Block block;
  for (size_t first = 0; first < values.size(); first += info.block, b += info.block_bytes) {
    if (read != nullptr) read(b, block);
    for (int k = 0; k < weights / code.group; ++k) {
      const auto at = static_cast<size_t>(k * code.group);
      if (read == nullptr) round_group(&values[first + at], block.scale[k], block.codes + at);
      fits = fits && fits_half(block.scale[k]) && (!code.has_offset || fits_half(block.offset[k]));
      *scales++ = f32_to_f16(block.scale[k]);
      if (code.has_offset) *offsets++ = f32_to_f16(block.offset[k]);
    }
    pack_codes(code, block.codes, weights, codes);
    codes += code_bytes_per_row(code, weights);
  }
  return fits;
}

}  // namespace walsh
