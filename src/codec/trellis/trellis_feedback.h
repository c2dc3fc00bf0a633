// Holds the scales of rows while errors are fed back, and computes the final scales. The encoders
// of trellis tensors with error feedback share it, wherever tiles are searched.
#pragma once

#include <cstdint>
#include <vector>

#include "codec/encode/encode_source.h"
#include "codec/trellis/trellis.h"
#include "codec/trellis/trellis_kernels.h"
#include "codec/trellis/trellis_scales.h"
#include "codec/trellis/trellis_tensor.h"
#include "rotate/rotation.h"

namespace walsh::detail {

// No level is this large, so a larger target would only make the costs overflow.
inline constexpr float kLargestTarget = 64;

// Holds what one call knows of the whole tensor. Its threads share it.
struct FedBackTrellis : EncodeCall {
  // If `kept` is not null, it receives what read() would return for all rows.
  explicit FedBackTrellis(const EncodeCall& call, float* kept = nullptr);

  const TrellisCode& code() const { return tensor.format->trellis; }
  // Reads rows [begin, end) into rotated[][feedback->size()].
  void read(int64_t begin, int64_t end, float* rotated) const;

  Rotator rotator;
  BlockPowers powers;
  RankOneScales scales;
  TrellisTable table;
  // Levels chosen for N(0,1) come closest to it after they are multiplied by this factor. Rows get
  // it as a scale in the end, but the feedback of errors needs it in advance.
  float expected = 1;
};

// Holds the scales of a few rows.
class FedBackScales {
 public:
  FedBackScales(const FedBackTrellis& job, int64_t first, int64_t rows);

  // These return the factors of the targets, and of the levels that were chosen, [rows][blocks].
  const float* target_factors() const { return target_factors_.data(); }
  const float* level_factors() const { return level_factors_.data(); }
  // Stores the scales in the file's arrays. `row_factors` has the factor of every row
  // (FeedbackStrip::row_factors).
  void store(const double* row_factors) const;

 private:
  float row_scale(int64_t r) const;

  const FedBackTrellis& job_;
  int64_t first_, rows_, blocks_;
  // They are the scales of the original weights, [rows][blocks], 0 where all weights are zero.
  std::vector<float> start_;
  std::vector<float> target_factors_, level_factors_;
};

}  // namespace walsh::detail
