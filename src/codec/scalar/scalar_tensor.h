// Encodes a whole tensor in a scalar format. This header declares where the rows of its passes go,
// what they leave over, and the three ways to encode it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "codec/encode/encode_source.h"
#include "codec/feedback/error_feedback.h"
#include "codec/scalar/encoder.h"
#include "codec/tensor.h"
#include "rotate/rotation.h"

namespace walsh::detail {

// Encodes the passes of a tensor. Threads share it and write disjoint rows. Dense formats have no
// pass.
class ScalarPasses {
 public:
  // `tensor` has its arrays in `storage`. Both must outlive this.
  ScalarPasses(const Tensor& tensor, const TensorStorage& storage);

  int64_t padded() const { return padded_; }
  PassOutput output(int pass, int64_t row) const;
  // Writes x[cols] to out[padded], rotated as the pass needs it.
  void rotate(int pass, int64_t row, const float* x, float* out) const;
  // Subtracts the decoded row from x[cols]. buffer[padded] is overwritten.
  void subtract(int pass, int64_t row, float* buffer, float* x) const;
  // Encodes x[cols] and subtracts the decoded row from it.
  void encode(int pass, const EncodeOptions& options, int64_t row, float* buffer, float* x) const;

 private:
  const Tensor& tensor_;
  const Format& format_;
  int64_t padded_;
  PassOutput outputs_[2];
  std::vector<Rotator> rotators_;
};

// Encodes row by row.
void encode_scalar(const EncodeCall& call);

// Does the same with error feedback in the basis of the last pass. Scales are chosen by the plain
// search on what a group should become when it is reached, columns are then rounded one by one, and
// in the end all scales of a row are multiplied by the factor that suits H. The first pass of a
// residual format is plain; errors are fed back in the second pass, which rounds what the first
// leaves over.
void encode_scalar_with_feedback(const EncodeCall& call);

// Encodes with errors fed back in two directions (codec/feedback/two_sided.h).
void encode_scalar_two_sided(const EncodeCall& call);

}  // namespace walsh::detail
