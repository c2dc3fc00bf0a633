// The passes of a scalar tensor that is being encoded: where the rows of each go, and what they
// leave over.
#pragma once

#include <cstdint>
#include <vector>

#include "codec/encode/encode_source.h"
#include "codec/scalar/encoder.h"
#include "codec/tensor.h"
#include "rotate/rotation.h"

namespace walsh::detail {

// Threads share it and write disjoint rows. No pass for dense formats.
class ScalarPasses {
 public:
  // `tensor` has its arrays in `storage`; both outlive this.
  ScalarPasses(const Tensor& tensor, const TensorStorage& storage);

  int64_t padded() const { return padded_; }
  PassOutput output(int pass, int64_t row) const;
  // out[padded] = x[cols], rotated as the pass wants it.
  void rotate(int pass, int64_t row, const float* x, float* out) const;
  // Takes the decoded row away from x[cols]; buffer[padded] is overwritten.
  void subtract(int pass, int64_t row, float* buffer, float* x) const;
  // Encodes x[cols] and takes the decoded row away from it.
  void encode(int pass, const EncodeOptions& options, int64_t row, float* buffer, float* x) const;

 private:
  const Tensor& tensor_;
  const Format& format_;
  int64_t padded_;
  PassOutput outputs_[2];
  std::vector<Rotator> rotators_;
};

}  // namespace walsh::detail
