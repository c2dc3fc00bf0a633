// Encodes a whole tensor in a trellis format, tile row by tile row.
#pragma once

#include "codec/encode/encode_source.h"
#include "codec/encode/encode_tensor.h"
#include "codec/feedback/error_feedback.h"
#include "codec/trellis/tile_device.h"
#include "codec/trellis/trellis_scales.h"

namespace walsh::detail {

// Fills the arrays of `tensor`, which is bound to `storage`. The bytes do not depend on the number
// of threads or the instruction set. Throws as encode_tensor.
void encode_trellis(const Tensor& tensor, const EncodeOptions& options, ReadRows read_rows,
                    const TensorStorage& storage, ThreadPool& pool, ErrorSum& errors);
// Encodes to the same bytes; a device that knows the code searches the tiles.
void encode_trellis_on(TileDevice& device, const Tensor& tensor, const EncodeOptions& options,
                       ReadRows read_rows, const TensorStorage& storage, ThreadPool& pool,
                       ErrorSum& errors);

// Encodes with error feedback, tile by tile: errors reach the tiles behind. Scales are those of the
// original weights, times a factor per row in the end.
void encode_trellis_with_feedback(const Tensor& tensor, const EncodeOptions& options,
                                  const ErrorFeedback& feedback, ReadRows read_rows,
                                  const TensorStorage& storage, ThreadPool& pool, ErrorSum& errors);
// Encodes with error feedback to the same bytes; a device that knows the code searches the tiles
// and feeds errors back.
void encode_trellis_with_feedback_on(TileDevice& device, const Tensor& tensor,
                                     const EncodeOptions& options, const ErrorFeedback& feedback,
                                     ReadRows read_rows, const TensorStorage& storage,
                                     ThreadPool& pool, ErrorSum& errors);

// Encodes with errors fed back in two directions (codec/feedback/two_sided.h). `device` searches
// the tiles unless it is null.
void encode_trellis_two_sided(TileDevice* device, const Tensor& tensor,
                              const EncodeOptions& options, const ErrorFeedback& inputs,
                              const ErrorFeedback& outputs, ReadRows read_rows,
                              const TensorStorage& storage, ThreadPool& pool, ErrorSum& errors);

// Returns the mean squares of the rotated source rows per column block, and writes the rows
// themselves to kept[rows][rotator.size()] unless it is null.
BlockPowers measure_powers(const Rotator& rotator, int64_t rows, int64_t cols, ReadRows read_rows,
                           ThreadPool& pool, float* kept = nullptr);

// Returns which share of the variance per row and column block one factor per row and one per block
// do not explain (RankOneScales::unexplained). The source rows are taken in the rotated basis.
double rank_one_misfit(const Rotation& rotation, int64_t rows, int64_t cols, ReadRows read_rows,
                       ThreadPool& pool);

}  // namespace walsh::detail
