// Searches the scale of one group (docs/formats/README.md).
#pragma once

#include <cstdint>

#include "base/half.h"
#include "codec/scalar/encoder.h"
#include "codec/scalar/encoder_codebook.h"

namespace walsh::detail {

// The search sees a group multiplied by a power of two, which changes no rounding but keeps squares
// of denormal and huge values in range. to_stored * scale is what is rounded to fp16.
struct StoredScale {
  double to_stored = 1;
  float largest = kLargestHalf;  // stored scales saturate here
};

// The search starts at ScalarCode::start times the rms times each of these: the plain rms first,
// then nine steps around it; Effort::fast starts only at the first.
inline constexpr float kStartFactors[] = {1.0f, 0.7f,   0.775f, 0.85f,  0.925f,
                                          1.0f, 1.075f, 1.15f,  1.225f, 1.3f};

// A scale that was tried on a group has these values.
struct GroupScale {
  uint16_t half = 0;   // as stored; 0 decodes to zeros
  float decoded = 0;   // the same in the units of x
  float assigned = 0;  // scale of the thresholds: that of `decoded`, but for shape-gain
  float error = 0;     // sum of squares; not set by a search of a single start
};

// Returns the scale of x[n], n a multiple of 32.
GroupScale find_scale(const ScalarCode& code, const Codebook& codebook,
                      const EncodeOptions& options, const StoredScale& stored, const float* x,
                      int64_t n);

// Returns the same, refitted from one known scale.
GroupScale refit_scale(const Codebook& codebook, const StoredScale& stored, const float* x,
                       int64_t n, float scale);

void assign_codes(const Codebook& codebook, const GroupScale& scale, const float* x, int64_t n,
                  uint8_t* codes);

// Computes q8_0 and q4_0 as ggml does, on the values themselves.
uint16_t encode_absmax_group(int bits, const float* x, int64_t n, uint8_t* codes);

// Returns the nearest fp16, at most `largest` in magnitude; never -0.
uint16_t saturated_half(float value, float largest);

}  // namespace walsh::detail
