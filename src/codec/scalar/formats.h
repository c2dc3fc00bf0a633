// Lists the scalar formats.
#pragma once

#include "codec/codebooks.h"
#include "codec/format.h"

namespace walsh::scalar {

constexpr ScalarCode lloyd_max(int bits, int group) {
  ScalarCode code;
  code.bits = bits;
  code.group = group;
  switch (bits) {
    case 2:
      code.levels = detail::kNormal2Bit;
      code.levels_i8 = detail::kNormal2BitI8;
      code.unit = detail::kNormal2Bit[3] / 127;
      break;
    case 3:
      code.levels = detail::kNormal3Bit;
      code.levels_i8 = detail::kNormal3BitI8;
      code.unit = detail::kNormal3Bit[7] / 127;
      break;
    default:
      code.levels = detail::kNormal4Bit;
      code.levels_i8 = detail::kNormal4BitI8;
      code.unit = detail::kNormal4Bit[15] / 127;
  }
  return code;
}

constexpr ScalarCode interleaved(const float* levels, const int8_t* levels_i8, float unit) {
  ScalarCode code;
  code.bits = 3;
  code.group = 256;
  code.has_offset = true;
  code.levels = levels;
  code.levels_i8 = levels_i8;
  code.unit = unit;
  return code;
}

constexpr ScalarCode absmax(int bits) {
  ScalarCode code;
  code.bits = bits;
  code.group = 32;
  code.fit = ScaleFit::absmax;
  if (bits == 4) {
    code.levels = detail::kLinear4Bit;
    code.levels_i8 = detail::kLinear4BitI8;
  }
  return code;
}

constexpr Format coded(std::string_view name, ScalarCode code, int rotation_block, double bound,
                       std::string_view note) {
  Format format;
  format.name = name;
  format.kind = CodeKind::scalar;
  format.passes = 1;
  format.code[0] = code;
  format.rotation_block = rotation_block;
  format.bound = bound;
  format.note = note;
  return format;
}

constexpr Format residual(std::string_view name, int bits, int residual_bits, double bound,
                          int planes, std::string_view note) {
  Format format = coded(name, lloyd_max(bits, 128), 128, bound, note);
  format.passes = 2;
  format.code[1] = lloyd_max(residual_bits, 128);
  format.activation_planes = planes;
  return format;
}

constexpr Format q8_0() {
  Format format = coded("q8_0", absmax(8), 0, 3.0e-5, "8-bit blocks of GGUF, not rotated");
  format.activation_planes = 2;
  return format;
}

constexpr ScalarCode strict() {
  ScalarCode code = interleaved(detail::kStrict, detail::kStrictI8, 0.01f);
  code.start = detail::kStrictStart;
  return code;
}

constexpr ScalarCode ternary_paper() {
  ScalarCode code =
      interleaved(detail::kTernaryPaper, detail::kTernaryI8, detail::kTernaryPaper[2] / 127);
  code.fit = ScaleFit::sigma;
  return code;
}

constexpr ScalarCode interleaved_full(int sub_group) {
  ScalarCode code =
      interleaved(detail::kInterleaved, detail::kInterleavedI8, detail::kInterleaved[7] / 127);
  code.sub_group = sub_group;
  return code;
}

inline constexpr Format kFormats[] = {
    q8_0(),
    coded("q4_0", absmax(4), 0, 7.7e-3, "4-bit blocks of GGUF, not rotated"),
    coded("itq3_s", interleaved_full(0), 256, 0.0331,
          "interleaved ternary, all eight Lloyd-Max levels"),
    coded("itq3_s:strict", strict(), 256, 0.0590,
          "interleaved ternary, six uniform levels as the ITQ3_S paper has them"),
    coded("itq3_s:ternary",
          interleaved(detail::kTernary, detail::kTernaryI8, detail::kTernary[2] / 127), 256, 0.188,
          "ternary +-1.224 sigma, the best; bound: measured 0.187"),
    coded("itq3_s:ternary-paper", ternary_paper(), 256, 0.265,
          "ternary +-0.798 sigma, the literal rule; bound: theory 0.2633"),
    coded("itq3_s8", interleaved_full(32), 256, 0.0257, "itq3_s with eight sub-scales per block"),
    coded("tq2", lloyd_max(2, 128), 128, 0.1142, "Lloyd-Max, 2 bits"),
    coded("tq3", lloyd_max(3, 128), 128, 0.0316, "Lloyd-Max, 3 bits"),
    coded("tq4", lloyd_max(4, 128), 128, 0.00780, "Lloyd-Max, 4 bits"),
    coded("tq2:full", lloyd_max(2, 0), 1024, 0.1180,
          "2 bits, one scale per row; bound: measured 0.117"),
    coded("tq3:full", lloyd_max(3, 0), 1024, 0.0345,
          "3 bits, one scale per row; bound: measured 0.0342"),
    coded("tq4:full", lloyd_max(4, 0), 1024, 0.0094,
          "4 bits, one scale per row; bound: measured 0.0093"),
    residual("tq4+4", 4, 4, 7.4e-5, 2, "4 bits and a 4-bit residual"),
    residual("tq4+2", 4, 2, 9.9e-4, 1, "4 bits and a 2-bit residual"),
    residual("tq3+2", 3, 2, 3.7e-3, 1, "3 bits and a 2-bit residual"),
};

}  // namespace walsh::scalar
