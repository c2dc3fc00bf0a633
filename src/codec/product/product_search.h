// Searches the pointers, signs and scale of one group of a product code (docs/formats/pq3.md).
#pragma once

#include <cstdint>

#include "codec/product/product_kernels.h"
#include "codec/scalar/encoder.h"

namespace walsh::detail {

// A group has at most this many columns, a multiple of 32.
inline constexpr int kProductGroup = kSearchVectors * kProductValues;

// This many columns have their vectors side by side.
inline constexpr int64_t kProductBlock = 16;

// Sets the targets of x[n] at `scale`, i.e. x / scale in steps of a code with this unit.
void set_targets(const float* x, int64_t n, float scale, float unit, ProductTargets& targets);
class ProductSearch {
 public:
  // `code` and codebook[256][4] must outlive the search.
  ProductSearch(const ProductCode& code, const int8_t* codebook, const EncodeOptions& options);

  // Encodes x[n], n at most kProductGroup, and returns its fp16 scale. Writes pointers[n / 4], four
  // per 16 columns, and negative[n], each 0 or 1. Scales saturate; a group of zeros has scale 0.
  uint16_t encode(const float* x, int64_t n, uint8_t* pointers, uint8_t* negative);
  // Encodes kProductBlock columns at a given scale, and writes what they decode to.
  void encode_block(const float* x, float scale, uint8_t* pointers, uint8_t* negative,
                    float* values);
  // Returns the scale, not rounded, that a search from a single start finds for x; 0 for zeros.
  float scale_of(const float* x, int64_t n);

 private:
  struct Assigned {
    double xq = 0;  // It is the sum of values times levels.
    int qq = 0;     // It is the sum of the squares of the levels, in units.
    uint8_t pointers[kSearchVectors];
    int8_t levels[kProductGroup];
  };
  struct Trial {
    uint16_t half = 0;
    float decoded = 0, assigned = 0;
    double error = 0;
  };

  void normalize(const float* x, int64_t n);
  void assign(float scale, Assigned& result);
  float refit(float scale);
  Trial stored(float scale, float assigned) const;
  Trial best_trial();
  double error_of(const Assigned& assigned, float decoded) const;

  const ProductCode& code_;
  const int8_t* codebook_;
  EncodeOptions options_;
  ProductSearchKernel kernel_;
  ProductTable table_;
  ProductTargets targets_;
  float values_[kProductGroup];  // The values of the current group, times 2^-exponent_, are here.
  int64_t n_ = 0;
  int exponent_ = 0;
  double squares_ = 0;
  float rms_ = 0;
};

}  // namespace walsh::detail
