// What the encoders of trellis tensors with error feedback share, wherever tiles are searched: the
// scales that rows have while errors are fed back, and those that they get in the end.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/trellis.h"
#include "quantize/encode/encode_source.h"
#include "quantize/feedback/feedback_encoder.h"
#include "quantize/trellis/trellis_kernels.h"
#include "quantize/trellis/trellis_scales.h"
#include "rotate/rotation.h"

namespace walsh::detail {

// Beyond every level; a larger target would only overflow the costs.
inline constexpr float kLargestTarget = 64;

// What one call knows about the whole tensor; shared by the threads.
struct FedBackTrellis {
  // `kept` gets what read() would give of all rows, unless it is null.
  FedBackTrellis(const Tensor& tensor, const EncodeOptions& options, const ErrorFeedback& feedback,
                 ReadRows read_rows, const TensorStorage& storage, ThreadPool& pool,
                 TileDevice* device = nullptr, float* kept = nullptr);

  const TrellisCode& code() const { return tensor.format->trellis; }
  // Rows [begin, end) into rotated[][feedback.size()].
  void read(int64_t begin, int64_t end, float* rotated) const;
  // When they are stored.
  void measure(int64_t begin, int64_t end, ErrorSum& errors) const;

  const Tensor& tensor;
  const EncodeOptions& options;
  const ErrorFeedback& feedback;
  ReadRows read_rows;
  const TensorStorage& storage;
  Rotator rotator;
  BlockPowers powers;
  RankOneScales scales;
  TrellisTable table;
  // What the levels chosen for N(0,1) have to be multiplied with to come nearest to it: the scale
  // that rows will get in the end, which errors that are fed back must know before.
  float expected = 1;
};

// The scales of a few rows.
class FedBackScales {
 public:
  FedBackScales(const FedBackTrellis& job, int64_t first, int64_t rows);

  // [rows][blocks]: what targets, and what the levels that were chosen, are multiplied with.
  const float* target_factors() const { return target_factors_.data(); }
  const float* level_factors() const { return level_factors_.data(); }
  // The scales of the file, from the factor of every row (FeedbackStrip::row_factors).
  void store(const double* row_factors) const;

 private:
  float row_scale(int64_t r) const;

  const FedBackTrellis& job_;
  int64_t first_, rows_, blocks_;
  std::vector<float> start_;  // [rows][blocks]; those of the original weights, 0 where all is zero
  std::vector<float> target_factors_, level_factors_;
};

}  // namespace walsh::detail
