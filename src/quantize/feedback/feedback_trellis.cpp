#include <algorithm>
#include <cmath>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "formats/trellis.h"
#include "quantize/feedback/feedback_encoder.h"
#include "quantize/feedback/feedback_strip.h"
#include "quantize/scalar/encoder_search.h"
#include "quantize/trellis/trellis_scales.h"
#include "quantize/trellis/trellis_search.h"
#include "quantize/trellis/trellis_tensor.h"

namespace walsh::detail {
namespace {

constexpr float kLargestHalf = 65504;
// Beyond every level; a larger target would only overflow the costs.
constexpr float kLargestTarget = 64;
constexpr double kLeastFactor = 0.5, kLargestFactor = 2;
constexpr int64_t kStripTiles = FeedbackStrip::kRows / kTileRows;

float level_of(const TrellisCode& code, const TrellisTable& table, const uint16_t* states, int t) {
  return table.levels.data()[t % code.values * table.states() + states[t / code.values]];
}

// What the levels chosen for N(0,1) have to be multiplied with to come nearest to it: the scale
// that rows will get in the end, which errors that are fed back must know before.
float expected_scale(const TrellisCode& code, const TrellisTable& table, int seam_weights) {
  constexpr int kTiles = 32;
  TileSearch search(table, seam_weights);
  Random random(5);
  double xq = 0, qq = 0;
  for (int tile = 0; tile < kTiles; ++tile) {
    float x[kTileWeights], targets[kTileWeights];
    uint16_t states[kTileWeights];
    for (int t = 0; t < kTileWeights; ++t) {
      x[t] = static_cast<float>(random.normal());
      targets[t] = x[t] / code.prescale;
    }
    search.encode(targets, states);
    for (int t = 0; t < kTileWeights; ++t) {
      const double q = level_of(code, table, states, t);
      xq += double{x[t]} * q;
      qq += q * q;
    }
  }
  return static_cast<float>(xq / qq);
}

// What one call knows about the whole tensor; shared by the threads.
struct TrellisJob {
  const Tensor& tensor;
  const EncodeOptions& options;
  const ErrorFeedback& feedback;
  const TensorStorage& storage;
  const TrellisTable& table;
  const BlockPowers& powers;
  const RankOneScales& scales;
  float expected = 1;  // see expected_scale

  const TrellisCode& code() const { return tensor.format->trellis; }
};

// Encodes a few rows of tiles.
class TrellisStripEncoder {
 public:
  explicit TrellisStripEncoder(const TrellisJob& job)
      : job_(job),
        code_(job.code()),
        padded_(job.feedback.size()),
        blocks_(job.powers.blocks()),
        search_(job.table, seam_weights(job.options.effort)),
        strip_(job.feedback) {}

  FeedbackStrip& strip() { return strip_; }

  // Rows from `first` on, a multiple of kTileRows.
  void encode(int64_t first, int64_t rows) {
    first_ = first;
    rows_ = rows;
    set_scales();
    strip_.start(rows);
    for (int64_t begin = 0; begin < padded_; begin += FeedbackStrip::kBlock) {
      const int64_t end = std::min(padded_, begin + FeedbackStrip::kBlock);
      for (int64_t row = 0; row < rows; row += kTileRows) {
        for (int64_t col = begin; col < end; col += kTileCols)
          encode_tile(row, col);
      }
      strip_.finish_block(end);
    }
    store_scales();
  }

 private:
  // The scale of a row's block, that of the original weights; 0 where all is zero.
  float& scale(int64_t row, int64_t block) {
    return start_[static_cast<size_t>(row * blocks_ + block)];
  }

  void set_scales() {
    start_.resize(static_cast<size_t>(rows_ * blocks_));
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t b = 0; b < blocks_; ++b) {
        const auto power = static_cast<size_t>((first_ + r) * blocks_ + b);
        scale(r, b) = code_.block_scales ? static_cast<float>(std::sqrt(job_.powers.mean[power]))
                                         : std::min(row_scale(r), kLargestHalf) *
                                               job_.scales.col[static_cast<size_t>(b)];
      }
    }
  }

  float row_scale(int64_t r) const { return job_.scales.row[static_cast<size_t>(first_ + r)]; }

  void encode_tile(int64_t row, int64_t col) {
    const int64_t block = column_block(col, padded_);
    const int rows = static_cast<int>(std::min<int64_t>(kTileRows, rows_ - row));
    float targets[kTileWeights] = {};
    for (int r = 0; r < rows; ++r) {
      const float prescaled = code_.prescale * scale(row + r, block);
      const float inverse = prescaled > 0 && std::isnormal(1 / prescaled) ? 1 / prescaled : 0.0f;
      float wanted[kTileCols];
      strip_.block_targets(row + r, col, kTileCols, wanted);
      for (int c = 0; c < kTileCols; ++c) {
        targets[tile_position(r, c)] =
            std::clamp(wanted[c] * inverse, -kLargestTarget, kLargestTarget);
      }
    }
    uint16_t states[kTileWeights];
    search_.encode(targets, states);
    const int64_t tile = (first_ + row) / kTileRows * (padded_ / kTileCols) + col / kTileCols;
    pack_tile(code_, states, job_.storage.arrays[0].data() + tile * tile_bytes(code_));
    for (int r = 0; r < rows; ++r) {
      float values[kTileCols];
      for (int c = 0; c < kTileCols; ++c) {
        values[c] = job_.expected * scale(row + r, block) *
                    level_of(code_, job_.table, states, tile_position(r, c));
      }
      strip_.set(row + r, col, kTileCols, values);
    }
  }

  void store_scales() {
    double factors[FeedbackStrip::kRows];
    strip_.row_factors(factors);
    uint16_t* out = job_.storage.halves(1);
    for (int64_t r = 0; r < rows_; ++r) {
      const double factor =
          std::clamp(factors[r], kLeastFactor, kLargestFactor) * double{job_.expected};
      const auto stored = [&](float start) {
        return saturated_half(static_cast<float>(factor * double{start}), kLargestHalf);
      };
      if (!code_.block_scales) {
        out[first_ + r] = stored(std::min(row_scale(r), kLargestHalf));
        continue;
      }
      for (int64_t b = 0; b < blocks_; ++b)
        out[(first_ + r) * blocks_ + b] = stored(scale(r, b));
    }
  }

  const TrellisJob& job_;
  const TrellisCode& code_;
  int64_t padded_, blocks_, first_ = 0, rows_ = 0;
  TileSearch search_;
  FeedbackStrip strip_;
  std::vector<float> start_;  // [rows][blocks]
};

}  // namespace

void encode_trellis_with_feedback(const Tensor& tensor, const EncodeOptions& options,
                                  const ErrorFeedback& feedback, ReadRows read_rows,
                                  const TensorStorage& storage, ThreadPool& pool,
                                  ErrorSum& errors) {
  const int64_t rows = tensor.rows, cols = tensor.cols;
  const Rotator rotator(tensor.rotation[0], feedback.size());
  const BlockPowers powers = measure_powers(rotator, rows, cols, read_rows, pool);
  const RankOneScales scales = fit_rank_one(powers);
  const TrellisTable table(tensor.format->trellis);
  TrellisJob job{tensor, options, feedback, storage, table, powers, scales};
  job.expected = expected_scale(job.code(), table, seam_weights(options.effort));
  if (!job.code().block_scales) {
    for (size_t b = 0; b < scales.col.size(); ++b)
      storage.halves(2)[b] = f32_to_f16(scales.col[b]);
  }
  const int64_t step = kStripTiles * kTileRows;
  pool.for_each((rows + step - 1) / step, [&](int64_t item) {
    const int64_t begin = item * step, end = std::min(rows, begin + step);
    TrellisStripEncoder strip(job);
    std::vector<float> source(static_cast<size_t>((end - begin) * cols));
    std::vector<float> decoded(static_cast<size_t>(rotator.size()));
    read_finite_rows(read_rows, begin, end, cols, source.data());
    for (int64_t row = begin; row < end; ++row) {
      rotate_row(rotator, source.data() + (row - begin) * cols, cols, row,
                 strip.strip().row(row - begin));
    }
    strip.encode(begin, end - begin);
    for (int64_t row = begin; row < end; ++row) {
      float* x = source.data() + (row - begin) * cols;
      const double norm = squared_length(x, cols);
      decode_pass_row(tensor, 0, row, decoded.data());
      rotator.invert(decoded.data());
      for (int64_t i = 0; i < cols; ++i)
        x[i] -= decoded[static_cast<size_t>(i)];
      errors.set(row, squared_length(x, cols), norm);
    }
  });
}

}  // namespace walsh::detail
