#include <algorithm>
#include <vector>

#include "base/checked.h"
#include "codec/feedback/feedback_strip.h"
#include "codec/trellis/tile_device.h"
#include "codec/trellis/trellis_feedback.h"
#include "codec/trellis/trellis_search.h"

namespace walsh::detail {
namespace {

constexpr int64_t kStripTiles = FeedbackStrip::kRows / kTileRows;

// Encodes a few rows of tiles with error feedback.
class TrellisStripEncoder {
 public:
  TrellisStripEncoder(const FedBackTrellis& job, int64_t first, int64_t rows)
      : job_(job),
        code_(job.code()),
        padded_(job.feedback->size()),
        blocks_(job.powers.blocks()),
        first_(first),
        rows_(rows),
        scales_(job, first, rows),
        search_(job.table, seam_weights(job.options.effort)),
        strip_(*job.feedback) {}

  float* row(int64_t r) { return strip_.row(r); }

  // Encodes the rows, which must be set before.
  void encode() {
    strip_.start(rows_);
    for (int64_t begin = 0; begin < padded_; begin += FeedbackStrip::kBlock) {
      const int64_t end = std::min(padded_, begin + FeedbackStrip::kBlock);
      for (int64_t col = begin; col < end; col += kTileCols)
        encode_tiles(col);
      strip_.finish_block(end);
    }
    double factors[FeedbackStrip::kRows];
    strip_.row_factors(factors);
    scales_.store(factors);
  }

 private:
  // Encodes the tiles of all rows at column `col`.
  void encode_tiles(int64_t col) {
    float targets[kStripTiles * kTileWeights] = {};
    uint16_t states[kStripTiles * kTileWeights];
    int tiles = 0;
    for (int64_t row = 0; row < rows_; row += kTileRows, ++tiles)
      set_targets(row, col, targets + tiles * kTileWeights);
    search_.encode(targets, tiles, states);
    for (int64_t row = 0; row < rows_; row += kTileRows)
      accept(row, col, states + row / kTileRows * kTileWeights);
  }

  int rows_of_tile(int64_t row) const {
    return static_cast<int>(std::min<int64_t>(kTileRows, rows_ - row));
  }

  void set_targets(int64_t row, int64_t col, float* targets) const {
    const int64_t block = column_block(col, padded_);
    for (int r = 0; r < rows_of_tile(row); ++r) {
      const float factor = scales_.target_factors()[(row + r) * blocks_ + block];
      float wanted[kTileCols];
      strip_.block_targets(row + r, col, kTileCols, wanted);
      for (int c = 0; c < kTileCols; ++c) {
        targets[tile_position(r, c)] =
            std::clamp(wanted[c] * factor, -kLargestTarget, kLargestTarget);
      }
    }
  }

  void accept(int64_t row, int64_t col, const uint16_t* states) {
    const int64_t block = column_block(col, padded_);
    const int64_t tile = (first_ + row) / kTileRows * (padded_ / kTileCols) + col / kTileCols;
    pack_tile(code_, states, job_.storage.arrays[0].data() + tile * tile_bytes(code_));
    for (int r = 0; r < rows_of_tile(row); ++r) {
      const float factor = scales_.level_factors()[(row + r) * blocks_ + block];
      float values[kTileCols];
      for (int c = 0; c < kTileCols; ++c)
        values[c] = factor * job_.table.level(states, tile_position(r, c));
      strip_.set(row + r, col, kTileCols, values);
    }
  }

  const FedBackTrellis& job_;
  const TrellisCode& code_;
  int64_t padded_, blocks_, first_, rows_;
  FedBackScales scales_;
  TileSearch search_;
  FeedbackStrip strip_;
};

// Encodes with a device that searches the tiles and feeds errors back.
void encode_on(TileDevice& device, const EncodeCall& call) {
  const int64_t rows = call.tensor.rows, padded = call.feedback->size();
  const TileDeviceUse use(device);
  const int64_t tile_cols = padded / kTileCols, step = device.fed_back_rows(padded);
  float* all = rows <= step ? device.rows(rows, padded) : nullptr;
  const FedBackTrellis job(call, all);
  std::vector<double> factors;
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t count = std::min(step, rows - begin), tiles = tile_rows(count);
    const FedBackScales scales(job, begin, count);
    float* x = all ? all : device.rows(count, padded);
    const auto for_tiles = [&](const auto& body) {
      call.pool.for_each(tiles, [&](int64_t tile) {
        body(tile, begin + tile * kTileRows, begin + std::min(count, (tile + 1) * kTileRows));
      });
    };
    if (!all) {
      for_tiles([&](int64_t, int64_t first, int64_t end) {
        job.read(first, end, x + (first - begin) * padded);
      });
    }
    factors.resize(static_cast<size_t>(count));
    const uint16_t* states = device.feed_back({*call.feedback, count, x, scales.target_factors(),
                                               scales.level_factors(), factors.data()});
    scales.store(factors.data());
    for_tiles([&](int64_t tile, int64_t first, int64_t end) {
      std::byte* out =
          call.storage.arrays[0].data() + first / kTileRows * tile_cols * tile_bytes(job.code());
      for (int64_t col = 0; col < tile_cols; ++col, out += tile_bytes(job.code()))
        pack_tile(job.code(), states + (col * tiles + tile) * kTileWeights, out);
      measure_rows(call, job.rotator, first, end);
    });
  }
}

}  // namespace

void encode_trellis_with_feedback(const EncodeCall& call) {
  if (call.device) return encode_on(*call.device, call);
  const int64_t rows = call.tensor.rows;
  const FedBackTrellis job(call);
  constexpr int64_t kStep = kStripTiles * kTileRows;
  call.pool.for_each(ceil_div(rows, kStep), [&](int64_t item) {
    const int64_t begin = item * kStep, end = std::min(rows, begin + kStep);
    TrellisStripEncoder strip(job, begin, end - begin);
    job.read(begin, end, strip.row(0));
    strip.encode();
    measure_rows(call, job.rotator, begin, end);
  });
}

}  // namespace walsh::detail
