#include "import/ggml_blocks.h"

#include <array>
#include <bit>

#include "base/half.h"
#include "import/ggml_codes.h"
#include "io/gguf_types.h"

namespace walsh {
namespace {

// Blocks of 32 weights have a scale, sometimes a minimum, and codes whose low nibbles are the first
// half of the block and whose high nibbles are the second.
void decode_q4_0(const uint8_t* b, float* out) {
  const float d = half_at(b);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((b[2 + i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((b[2 + i] >> 4) - 8);
  }
}

void decode_q4_1(const uint8_t* b, float* out) {
  const float d = half_at(b), m = half_at(b + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(b[4 + i] & 15) + m;
    out[i + 16] = d * static_cast<float>(b[4 + i] >> 4) + m;
  }
}

void decode_q5_0(const uint8_t* b, float* out) {
  const float d = half_at(b);
  for (int i = 0; i < 32; ++i)
    out[i] = d * static_cast<float>(ggml_five_bits(b + 2, b + 6, i) - 16);
}

void decode_q5_1(const uint8_t* b, float* out) {
  const float d = half_at(b), m = half_at(b + 2);
  for (int i = 0; i < 32; ++i)
    out[i] = d * static_cast<float>(ggml_five_bits(b + 4, b + 8, i)) + m;
}

void decode_q8_0(const uint8_t* b, float* out) {
  const float d = half_at(b);
  for (int i = 0; i < 32; ++i)
    out[i] = d * static_cast<float>(static_cast<int8_t>(b[2 + i]));
}

// Decodes a block. From here on blocks have 256 weights.
void decode_q2_k(const uint8_t* b, float* out) {
  const uint8_t *scales = b, *codes = b + 16;
  const float d = half_at(b + 80), dmin = half_at(b + 82);
  for (int i = 0; i < 256; ++i) {
    const float scale = d * static_cast<float>(scales[i / 16] & 15);
    const float minimum = dmin * static_cast<float>(scales[i / 16] >> 4);
    out[i] = scale * static_cast<float>(ggml_two_bits(codes, i)) - minimum;
  }
}

void decode_q3_k(const uint8_t* b, float* out) {
  float scales[16];
  for (int k = 0; k < 16; ++k)
    scales[k] = ggml_q3_k_scale(b, k);
  for (int i = 0; i < 256; ++i)
    out[i] = scales[i / 16] * static_cast<float>(ggml_q3_k_level(b, i));
}

void decode_q4_k(const uint8_t* b, float* out) {
  const GgmlScalesAndMinima s(b);
  for (int i = 0; i < 256; ++i)
    out[i] = s.scale[i / 32] * static_cast<float>(ggml_nibble(b + 16, i)) - s.minimum[i / 32];
}

void decode_q5_k(const uint8_t* b, float* out) {
  const GgmlScalesAndMinima s(b);
  for (int i = 0; i < 256; ++i)
    out[i] = s.scale[i / 32] * static_cast<float>(ggml_q5_k_code(b, i)) - s.minimum[i / 32];
}

void decode_q6_k(const uint8_t* b, float* out) {
  const uint8_t* scales = b + 192;
  const float d = half_at(b + 208);
  for (int i = 0; i < 256; ++i) {
    const float scale = d * static_cast<float>(static_cast<int8_t>(scales[i / 16]));
    out[i] = scale * static_cast<float>(ggml_q6_k_code(b, i) - 32);
  }
}

// A byte holds up to five ternary digits as a fraction of 256: multiplying by 3 moves the next one
// out.
void decode_digits(const uint8_t* bytes, int count, int digits, float d, float* out) {
  for (int i = 0; i < count; ++i) {
    auto rest = bytes[i];
    for (int k = 0; k < digits; ++k) {
      const int moved = rest * 3;
      out[k * count + i] = d * static_cast<float>((moved >> 8) - 1);
      rest = static_cast<uint8_t>(moved);
    }
  }
}

void decode_tq1_0(const uint8_t* b, float* out) {
  const float d = half_at(b + 52);
  decode_digits(b, 32, 5, d, out);
  decode_digits(b + 32, 16, 5, d, out + 160);
  decode_digits(b + 48, 4, 4, d, out + 240);
}

void decode_tq2_0(const uint8_t* b, float* out) {
  const float d = half_at(b + 64);
  for (int i = 0; i < 256; ++i)
    out[i] = d * static_cast<float>(ggml_two_bits(b, i) - 1);
}

// These are OCP's E2M1 values times two; ggml_e8m0_half() halves the scales.
constexpr std::array<int8_t, 16> kFp4 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void decode_mxfp4(const uint8_t* b, float* out) {
  const float d = ggml_e8m0_half(b[0]);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kFp4[b[1 + i] & 15]);
    out[i + 16] = d * static_cast<float>(kFp4[b[1 + i] >> 4]);
  }
}

void decode_curve(const uint8_t* codes, float d, float* out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kGgmlCurve[codes[i] & 15]);
    out[i + 16] = d * static_cast<float>(kGgmlCurve[codes[i] >> 4]);
  }
}

void decode_iq4_nl(const uint8_t* b, float* out) {
  decode_curve(b + 2, half_at(b), out);
}

void decode_iq4_xs(const uint8_t* b, float* out) {
  for (int k = 0; k < 8; ++k)
    decode_curve(b + 8 + 16 * k, ggml_iq4_xs_scale(b, k), out + 32 * k);
}

void decode_f32(const uint8_t* b, float* out) {
  *out = std::bit_cast<float>(u32_at(b));
}

void decode_f16(const uint8_t* b, float* out) {
  *out = half_at(b);
}

void decode_bf16(const uint8_t* b, float* out) {
  *out = bf16_to_f32(u16_at(b));
}

// The index is the type id. The decoder is null for a type that cannot be decoded.
constexpr auto kDecoders = [] {
  std::array<GgmlBlockDecoder*, 40> table{};
  table[0] = decode_f32;
  table[1] = decode_f16;
  table[2] = decode_q4_0;
  table[3] = decode_q4_1;
  table[6] = decode_q5_0;
  table[7] = decode_q5_1;
  table[8] = decode_q8_0;
  table[10] = decode_q2_k;
  table[11] = decode_q3_k;
  table[12] = decode_q4_k;
  table[13] = decode_q5_k;
  table[14] = decode_q6_k;
  table[16] = decode_iq2_xxs;
  table[17] = decode_iq2_xs;
  table[18] = decode_iq3_xxs;
  table[19] = decode_iq1_s;
  table[20] = decode_iq4_nl;
  table[21] = decode_iq3_s;
  table[22] = decode_iq2_s;
  table[23] = decode_iq4_xs;
  table[29] = decode_iq1_m;
  table[30] = decode_bf16;
  table[34] = decode_tq1_0;
  table[35] = decode_tq2_0;
  table[39] = decode_mxfp4;
  return table;
}();

}  // namespace

bool can_decode_ggml(uint32_t type) {
  return type < kDecoders.size() && kDecoders[type] != nullptr;
}

void decode_ggml(uint32_t type, std::span<const std::byte> blocks, float* out) {
  GgmlBlockDecoder* decode = kDecoders.at(type);
  const GgmlTypeInfo& info = *ggml_type_info(type);
  const auto* bytes = reinterpret_cast<const uint8_t*>(blocks.data());
  for (size_t i = 0; i + info.block_bytes <= blocks.size(); i += info.block_bytes) {
    decode(bytes + i, out);
    out += info.block;
  }
}

}  // namespace walsh
