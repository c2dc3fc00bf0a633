// Declares the loops of the scale search, which have one implementation per instruction set. Sums
// are kept in 16 partial sums, with element i in sum i % 16, which are then added pairwise, so that
// all implementations give the same bits.
#pragma once

#include <cstdint>

namespace walsh::detail {

inline constexpr int kMaxLevels = 16;

// Quantizes to the nearest level at one scale, with levels ascending. An element takes the highest
// level whose threshold it exceeds, so a tie goes to the lower level.
struct Ladder {
  int count = 0;  // There are 3, 4, 6, 8 or 16 levels.
  float levels[kMaxLevels];
  float thresholds[kMaxLevels - 1];
};

struct Products {
  float xq;  // It is the sum of x times its level.
  float qq;  // It is the sum of the squares of the levels.
};

// Holds one implementation. Every n is a multiple of 32.
struct EncoderKernels {
  float (*abs_max)(const float* x, int64_t n);
  float (*sum)(const float* x, int64_t n);
  float (*sum_squares)(const float* x, int64_t n);
  // Computes out = x * factor - shift.
  void (*scale_shift)(const float* x, int64_t n, float factor, float shift, float* out);
  Products (*products)(const Ladder& ladder, const float* x, int64_t n);
  // Returns the sum of (x - level(x))^2.
  float (*error)(const Ladder& ladder, const float* x, int64_t n);
  // Sets the rank of each element's level.
  void (*assign)(const Ladder& ladder, const float* x, int64_t n, uint8_t* ranks);
};

extern const EncoderKernels kEncoderRef;
extern const EncoderKernels kEncoderAvx2;
extern const EncoderKernels kEncoderAvx512;

// Returns the implementation for current_isa().
const EncoderKernels& encoder_kernels();

}  // namespace walsh::detail
