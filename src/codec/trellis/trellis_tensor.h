// Encodes a whole tensor in a trellis format, tile row by tile row.
#pragma once

#include "codec/encode/encode_source.h"
#include "codec/trellis/tile_device.h"
#include "codec/trellis/trellis_scales.h"

namespace walsh::detail {

void encode_trellis(const EncodeCall& call);

// Encodes with error feedback, tile by tile: errors reach later tiles. Scales are those of the
// original weights, times a factor per row in the end. A device feeds errors back itself.
void encode_trellis_with_feedback(const EncodeCall& call);

// Encodes with errors fed back in two directions (codec/feedback/two_sided.h).
void encode_trellis_two_sided(const EncodeCall& call);

// Returns the mean squares of the rotated source rows per column block, and writes the rows
// themselves to kept[rows][rotator.size()] unless it is null.
BlockPowers measure_powers(const Rotator& rotator, int64_t rows, int64_t cols, ReadRows read_rows,
                           ThreadPool& pool, float* kept = nullptr);

// Returns which share of the variance per row and column block one factor per row and one per block
// do not explain (RankOneScales::unexplained). The source rows are taken in the rotated basis.
double rank_one_misfit(const Rotation& rotation, int64_t rows, int64_t cols, ReadRows read_rows,
                       ThreadPool& pool);

}  // namespace walsh::detail
