// These are the level tables of scalar and trellis formats (docs/formats). They are
// written by tools/make_codebooks.py; do not edit them.
#pragma once

#include <cstdint>

namespace walsh::detail {

// These are the levels of Lloyd-Max for N(0,1), 2 bits; the code is the rank.
inline constexpr float kNormal2Bit[4] = {-1.510417608f, -0.452780035f, 0.452780035f, 1.510417608f};

// Each is round(127 level / largest).
inline constexpr int8_t kNormal2BitI8[4] = {-127, -38, 38, 127};

// These are the levels of Lloyd-Max for N(0,1), 3 bits; the code is the rank.
inline constexpr float kNormal3Bit[8] = {-2.151945705f, -1.343909279f, -0.756005281f, -0.245094179f,
                                         0.245094179f,  0.756005281f,  1.343909279f,  2.151945705f};

// Each is round(127 level / largest).
inline constexpr int8_t kNormal3BitI8[8] = {-127, -79, -45, -14, 14, 45, 79, 127};

// These are the levels of Lloyd-Max for N(0,1), 4 bits; the code is the rank.
inline constexpr float kNormal4Bit[16] = {
    -2.732589571f, -2.069017227f, -1.618046386f, -1.256231197f, -0.942340456f, -0.656759119f,
    -0.388048299f, -0.128395030f, 0.128395030f,  0.388048299f,  0.656759119f,  0.942340456f,
    1.256231197f,  1.618046386f,  2.069017227f,  2.732589571f};

// Each is round(127 level / largest).
inline constexpr int8_t kNormal4BitI8[16] = {-127, -96, -75, -58, -44, -31, -18, -6,
                                             6,    18,  31,  44,  58,  75,  96,  127};

// itq3_s orders the same 3-bit levels by the code t | s << 2, whose rank is 2t + s.
inline constexpr float kInterleaved[8] = {-2.151945705f, -0.756005281f, 0.245094179f, 1.343909279f,
                                          -1.343909279f, -0.245094179f, 0.756005281f, 2.151945705f};

// Each is round(127 level / largest).
inline constexpr int8_t kInterleavedI8[8] = {-127, -45, 14, 79, -79, -14, 45, 127};

// itq3_s:strict has the levels (4t + 2s - 5) / 4 for t < 3; t = 3 repeats t = 2.
inline constexpr float kStrict[8] = {-1.250000000f, -0.250000000f, 0.750000000f, 0.750000000f,
                                     -0.750000000f, 0.250000000f,  1.250000000f, 1.250000000f};

// Each is 100 level, which is exact.
inline constexpr int8_t kStrictI8[8] = {-125, -25, 75, 75, -75, 25, 125, 125};

// With this scale the strict levels have the least error on N(0,1).
inline constexpr float kStrictStart = 1.466865222f;

// itq3_s:ternary has three levels of Lloyd-Max, chosen by t; it does not use the selector.
inline constexpr float kTernary[8] = {-1.224006362f, 0.000000000f, 1.224006362f, 1.224006362f,
                                      -1.224006362f, 0.000000000f, 1.224006362f, 1.224006362f};

// itq3_s:ternary-paper has +-0.798 and 0.
inline constexpr float kTernaryPaper[8] = {-0.798000000f, 0.000000000f, 0.798000000f, 0.798000000f,
                                           -0.798000000f, 0.000000000f, 0.798000000f, 0.798000000f};

// Both ternary tables have these.
inline constexpr int8_t kTernaryI8[8] = {-127, 0, 127, 127, -127, 0, 127, 127};

// A level of q4_0 is code - 8.
inline constexpr float kLinear4Bit[16] = {
    -8.000000000f, -7.000000000f, -6.000000000f, -5.000000000f, -4.000000000f, -3.000000000f,
    -2.000000000f, -1.000000000f, 0.000000000f,  1.000000000f,  2.000000000f,  3.000000000f,
    4.000000000f,  5.000000000f,  6.000000000f,  7.000000000f};

// As integers they are the same.
inline constexpr int8_t kLinear4BitI8[16] = {-8, -7, -6, -5, -4, -3, -2, -1,
                                             0,  1,  2,  3,  4,  5,  6,  7};

// Retired codes have quantiles (i + 1/2) / 256 of N(0,1), as round(127 level / largest).
inline constexpr int8_t kNormalQuantilesI8[256] = {
    -127, -111, -103, -97, -93, -89, -86, -83, -81, -79, -77, -75, -73, -71, -70, -68, -67, -65,
    -64,  -63,  -62,  -61, -60, -59, -57, -57, -56, -55, -54, -53, -52, -51, -50, -49, -49, -48,
    -47,  -46,  -46,  -45, -44, -43, -43, -42, -41, -41, -40, -39, -39, -38, -37, -37, -36, -36,
    -35,  -34,  -34,  -33, -33, -32, -32, -31, -31, -30, -29, -29, -28, -28, -27, -27, -26, -26,
    -25,  -25,  -24,  -24, -23, -23, -22, -22, -21, -21, -20, -20, -19, -19, -18, -18, -17, -17,
    -17,  -16,  -16,  -15, -15, -14, -14, -13, -13, -12, -12, -12, -11, -11, -10, -10, -9,  -9,
    -8,   -8,   -8,   -7,  -7,  -6,  -6,  -5,  -5,  -5,  -4,  -4,  -3,  -3,  -2,  -2,  -2,  -1,
    -1,   0,    0,    1,   1,   2,   2,   2,   3,   3,   4,   4,   5,   5,   5,   6,   6,   7,
    7,    8,    8,    8,   9,   9,   10,  10,  11,  11,  12,  12,  12,  13,  13,  14,  14,  15,
    15,   16,   16,   17,  17,  17,  18,  18,  19,  19,  20,  20,  21,  21,  22,  22,  23,  23,
    24,   24,   25,   25,  26,  26,  27,  27,  28,  28,  29,  29,  30,  31,  31,  32,  32,  33,
    33,   34,   34,   35,  36,  36,  37,  37,  38,  39,  39,  40,  41,  41,  42,  43,  43,  44,
    45,   46,   46,   47,  48,  49,  49,  50,  51,  52,  53,  54,  55,  56,  57,  57,  59,  60,
    61,   62,   63,   64,  65,  67,  68,  70,  71,  73,  75,  77,  79,  81,  83,  86,  89,  93,
    97,   103,  111,  127};

// tc2:hq to tc4:hq have quantiles (i + 1/2) / 128, as round(127 level / largest).
inline constexpr int8_t kNormalQuantiles7I8[128] = {
    -127, -108, -99, -92, -86, -82, -78, -75, -72, -69, -66, -64, -62, -60, -58, -56, -54, -52, -51,
    -49,  -47,  -46, -44, -43, -42, -40, -39, -38, -36, -35, -34, -33, -32, -30, -29, -28, -27, -26,
    -25,  -24,  -23, -22, -21, -20, -19, -18, -17, -16, -15, -14, -13, -12, -11, -10, -9,  -8,  -7,
    -6,   -5,   -4,  -3,  -2,  -1,  0,   0,   1,   2,   3,   4,   5,   6,   7,   8,   9,   10,  11,
    12,   13,   14,  15,  16,  17,  18,  19,  20,  21,  22,  23,  24,  25,  26,  27,  28,  29,  30,
    32,   33,   34,  35,  36,  38,  39,  40,  42,  43,  44,  46,  47,  49,  51,  52,  54,  56,  58,
    60,   62,   64,  66,  69,  72,  75,  78,  82,  86,  92,  99,  108, 127};

// This is largest / 127 of the retired codes' quantiles.
inline constexpr float kNormalQuantilesUnit = 0.022721535f;

}  // namespace walsh::detail
