// Decodes ggml's IQ types of 1 to 3 bits, whose blocks have 256 weights in groups of eight. A group
// is one point of a grid (two for IQ3) with signs and a scale that 16 or 32 weights share.
#include <bit>

#include "import/ggml_codes.h"
#include "import/ggml_grids.h"

namespace walsh {
namespace {

// Returns the signs of eight weights from seven bits: the number of minus signs is even.
uint32_t even_signs(uint32_t seven) {
  return seven | (static_cast<uint32_t>(std::popcount(seven)) & 1) << 7;
}

void put(const int8_t* point, int size, float scale, uint32_t signs, float* out) {
  for (int i = 0; i < size; ++i) {
    const float value = scale * static_cast<float>(point[i]);
    out[i] = (signs >> i & 1) != 0 ? -value : value;
  }
}

// Returns the scale of the types whose codes of scales count from one half: it is the block's
// factor times (1/2 + code) / 4.
float quarter_scale(float d, int code) {
  return d * (0.5f + static_cast<float>(code)) * 0.25f;
}

// Writes the weights of a point of the ternary grid. Its values are shifted by one eighth.
void put_ternary(uint32_t index, float scale, bool minus, float* out) {
  const int8_t* point = &ggml_grid(GgmlGrid::iq1)[8 * index];
  for (int i = 0; i < 8; ++i)
    out[i] = scale * (static_cast<float>(point[i]) + (minus ? -0.125f : 0.125f));
}

}  // namespace

void decode_iq2_xxs(const uint8_t* b, float* out) {
  const auto grid = ggml_grid(GgmlGrid::iq2_xxs);
  const float d = half_at(b);
  for (int l = 0; l < 32; ++l) {
    const uint8_t* group = b + 2 + l / 4 * 8;
    const uint32_t word = u32_at(group + 4);
    put(&grid[8 * size_t{group[l % 4]}], 8, quarter_scale(d, static_cast<int>(word >> 28)),
        even_signs(word >> 7 * (l % 4) & 127), out + 8 * l);
  }
}

void decode_iq2_xs(const uint8_t* b, float* out) {
  const auto grid = ggml_grid(GgmlGrid::iq2_xs);
  const float d = half_at(b);
  for (int l = 0; l < 32; ++l) {
    const uint32_t code = u16_at(b + 2 + 2 * l);
    put(&grid[8 * (code & 511)], 8, quarter_scale(d, nibble_at(b + 66, l / 2)),
        even_signs(code >> 9), out + 8 * l);
  }
}

void decode_iq2_s(const uint8_t* b, float* out) {
  const auto grid = ggml_grid(GgmlGrid::iq2_s);
  const float d = half_at(b);
  for (int l = 0; l < 32; ++l) {
    const uint32_t high = b[66 + l / 4] >> 2 * (l % 4) & 3;
    put(&grid[8 * (b[2 + l] | high << 8)], 8, quarter_scale(d, nibble_at(b + 74, l / 2)), b[34 + l],
        out + 8 * l);
  }
}

void decode_iq3_xxs(const uint8_t* b, float* out) {
  const auto grid = ggml_grid(GgmlGrid::iq3_xxs);
  const float d = half_at(b);
  for (int l = 0; l < 32; ++l) {
    const uint32_t word = u32_at(b + 66 + l / 4 * 4);
    const float scale = d * (0.5f + static_cast<float>(word >> 28)) * 0.5f;
    const uint32_t signs = even_signs(word >> 7 * (l % 4) & 127);
    put(&grid[4 * size_t{b[2 + 2 * l]}], 4, scale, signs, out + 8 * l);
    put(&grid[4 * size_t{b[3 + 2 * l]}], 4, scale, signs >> 4, out + 8 * l + 4);
  }
}

void decode_iq3_s(const uint8_t* b, float* out) {
  const auto grid = ggml_grid(GgmlGrid::iq3_s);
  const float d = half_at(b);
  const uint8_t *codes = b + 2, *high = b + 66, *signs = b + 74, *scales = b + 106;
  for (int k = 0; k < 64; ++k) {
    const uint32_t index = codes[k] | (high[k / 8] >> k % 8 & 1u) << 8;
    const float scale = d * static_cast<float>(1 + 2 * nibble_at(scales, k / 8));
    put(&grid[4 * index], 4, scale, signs[k / 2] >> k % 2 * 4, out + 4 * k);
  }
}

void decode_iq1_s(const uint8_t* b, float* out) {
  const float d = half_at(b);
  for (int l = 0; l < 32; ++l) {
    const uint32_t high = u16_at(b + 34 + l / 4 * 2);
    const float scale = d * static_cast<float>(2 * (high >> 12 & 7) + 1);
    put_ternary(b[2 + l] | (high >> 3 * (l % 4) & 7) << 8, scale, (high & 0x8000) != 0,
                out + 8 * l);
  }
}

// Decodes a block of IQ1_M. Its factor is spread over the upper four bits of the words that hold
// the scales.
void decode_iq1_m(const uint8_t* b, float* out) {
  const uint8_t* scales = b + 48;
  uint32_t bits = 0;
  for (int k = 0; k < 4; ++k)
    bits |= static_cast<uint32_t>(u16_at(scales + 2 * k) >> 12) << 4 * k;
  const float d = f16_to_f32(static_cast<uint16_t>(bits));
  for (int l = 0; l < 32; ++l) {
    const uint32_t code = u16_at(scales + l / 8 * 2) >> 3 * (l / 2 % 4) & 7;
    const auto high = static_cast<uint32_t>(nibble_at(b + 32, l));
    put_ternary(b[l] | (high & 7) << 8, d * static_cast<float>(2 * code + 1), (high & 8) != 0,
                out + 8 * l);
  }
}

}  // namespace walsh
