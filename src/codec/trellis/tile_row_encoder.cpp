#include "codec/trellis/tile_row_encoder.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "codec/scalar/encoder_search.h"
#include "codec/trellis/trellis_feedback.h"

namespace walsh::detail {
namespace {

uint16_t refit(double xq, double qq) {
  if (!(xq > 0) || !(qq > 0)) return 0;
  return saturated_half(static_cast<float>(std::min(xq / qq, 1e30)), kLargestHalf);
}

}  // namespace

TileRowEncoder::TileRowEncoder(const TrellisJob& job, int64_t row)
    : job_(job),
      code_(job.tensor.format->trellis),
      first_row_(row),
      padded_(padded_cols(*job.tensor.format, job.tensor.cols)),
      blocks_(job.powers.blocks()),
      rows_(static_cast<int>(std::min<int64_t>(kTileRows, job.tensor.rows - row))),
      start_(static_cast<size_t>(kTileRows * blocks_)),
      block_xq_(start_.size()),
      block_qq_(start_.size()) {
  set_start_scales();
}

void TileRowEncoder::set_start_scales() {
  for (int r = 0; r < rows_; ++r) {
    const auto row = static_cast<size_t>(first_row_ + r);
    for (int64_t b = 0; b < blocks_; ++b) {
      const size_t power = row * static_cast<size_t>(blocks_) + static_cast<size_t>(b);
      start(r, b) = code_.block_scales ? static_cast<float>(std::sqrt(job_.powers.mean[power]))
                                       : std::min(job_.scales.row[row], kLargestHalf) *
                                             job_.scales.col[static_cast<size_t>(b)];
    }
  }
}

void TileRowEncoder::set_targets(const float* x, int64_t first, int64_t count,
                                 float* targets) const {
  for (int64_t tile = first; tile < first + count; ++tile, targets += kTileWeights) {
    const int64_t col = tile * kTileCols, block = column_block(col, padded_);
    for (int r = 0; r < kTileRows; ++r) {
      const float scale = code_.prescale * start_[static_cast<size_t>(r * blocks_ + block)];
      const float inverse = scale > 0 && std::isnormal(1 / scale) ? 1 / scale : 0.0f;
      for (int c = 0; c < kTileCols; ++c) {
        targets[tile_position(r, c)] =
            std::clamp(x[r * padded_ + col + c] * inverse, -kLargestTarget, kLargestTarget);
      }
    }
  }
}

void TileRowEncoder::accept(const float* x, int64_t first, int64_t count, const uint16_t* states) {
  const int64_t tile_row = first_row_ / kTileRows * tiles();
  for (int64_t tile = first; tile < first + count; ++tile, states += kTileWeights) {
    pack_tile(code_, states, job_.storage.arrays[0].data() + (tile_row + tile) * tile_bytes(code_));
    const int64_t col = tile * kTileCols;
    add_products(x + col, column_block(col, padded_), states);
  }
}

// Adds to the sums for the least-squares scales of the rows.
void TileRowEncoder::add_products(const float* x, int64_t block, const uint16_t* states) {
  const double col =
      code_.block_scales ? 1.0 : static_cast<double>(job_.scales.col[static_cast<size_t>(block)]);
  for (int r = 0; r < kTileRows; ++r) {
    double xq = 0, qq = 0;
    for (int c = 0; c < kTileCols; ++c) {
      const int t = tile_position(r, c);
      const double q = col * static_cast<double>(job_.table.level(states, t));
      xq += static_cast<double>(x[r * padded_ + c]) * q;
      qq += q * q;
    }
    xq_[r] += xq;
    qq_[r] += qq;
    block_xq_[static_cast<size_t>(r * blocks_ + block)] += xq;
    block_qq_[static_cast<size_t>(r * blocks_ + block)] += qq;
  }
}

void TileRowEncoder::store_scales() const {
  uint16_t* out = job_.storage.halves(1);
  for (int r = 0; r < rows_; ++r) {
    if (!code_.block_scales) {
      out[first_row_ + r] = refit(xq_[r], qq_[r]);
      continue;
    }
    for (int64_t b = 0; b < blocks_; ++b) {
      const auto i = static_cast<size_t>(r * blocks_ + b);
      out[(first_row_ + r) * blocks_ + b] = refit(block_xq_[i], block_qq_[i]);
    }
  }
}

}  // namespace walsh::detail
