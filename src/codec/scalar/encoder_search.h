// Searches the scale of one group of a scalar code (docs/formats/README.md).
#pragma once

#include <cstdint>

#include "base/half.h"
#include "codec/scalar/encoder.h"
#include "codec/scalar/encoder_codebook.h"

namespace walsh::detail {

// Relates scales of the search to stored ones. The search sees a group multiplied by a power of
// two, which changes no rounding but keeps squares of denormal and huge values in range. It rounds
// to_stored * scale to fp16.
struct StoredScale {
  double to_stored = 1;
  float largest = kLargestHalf;  // Stored scales saturate here.
};

// The search starts at ScalarCode::start times the rms times each of these. The first is the plain
// rms, then nine steps around it follow. Effort::fast starts only at the first.
inline constexpr float kStartFactors[] = {1.0f, 0.7f,   0.775f, 0.85f,  0.925f,
                                          1.0f, 1.075f, 1.15f,  1.225f, 1.3f};

// Describes a scale that was tried on a group.
struct GroupScale {
  uint16_t half = 0;  // This fp16 scale is stored; with 0 all values decode to zeros.
  float decoded = 0;  // This is the stored scale, in the units of x.
  // Scales the thresholds. It equals `decoded`, except for shape-gain.
  float assigned = 0;
  // It is a sum of squares. A search with a single start does not set it.
  float error = 0;
};

// Returns the scale of x[n], n a multiple of 32.
GroupScale find_scale(const ScalarCode& code, const Codebook& codebook,
                      const EncodeOptions& options, const StoredScale& stored, const float* x,
                      int64_t n);

// Returns the scale of x[n], refitted from one known scale.
GroupScale refit_scale(const Codebook& codebook, const StoredScale& stored, const float* x,
                       int64_t n, float scale);

void assign_codes(const Codebook& codebook, const GroupScale& scale, const float* x, int64_t n,
                  uint8_t* codes);

// Encodes a group of q8_0 or q4_0 as ggml does, on the values themselves. Returns the scale.
uint16_t encode_absmax_group(int bits, const float* x, int64_t n, uint8_t* codes);

// Returns the nearest fp16, at most `largest` in magnitude and never -0.
uint16_t saturated_half(float value, float largest);

}  // namespace walsh::detail
