#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "codec/feedback/two_sided.h"
#include "codec/trellis/tile_device.h"
#include "codec/trellis/trellis_feedback.h"
#include "codec/trellis/trellis_search.h"
#include "codec/trellis/trellis_tensor.h"

namespace walsh::detail {
namespace {

static_assert(kTileRows <= TwoSidedMatrix::kTile && kTileCols <= TwoSidedMatrix::kTile);

// Holds the tiles of a trellis tensor, whoever searches their states.
class TwoSidedTiles {
 public:
  TwoSidedTiles(const FedBackTrellis& job, TwoSidedMatrix& matrix)
      : job_(job), matrix_(matrix), scales_(job, 0, matrix.rows()) {}

  int64_t tile_cols() const { return matrix_.cols() / kTileCols; }

  // Sets the targets of tile (row, col), targets[kTileWeights], in the order of the sequence.
  void set_targets(int64_t row, int64_t col, float* targets) {
    const Block tile = block(row, col);
    float wanted[kTileWeights];
    matrix_.tile_targets(tile, wanted);
    std::fill_n(targets, kTileWeights, 0.0f);
    const float* factor = factors(scales_.target_factors(), tile);
    for (int r = 0; r < tile.rows; ++r, factor += job_.powers.blocks()) {
      for (int c = 0; c < kTileCols; ++c) {
        targets[tile_position(r, c)] =
            std::clamp(wanted[r * kTileCols + c] * *factor, -kLargestTarget, kLargestTarget);
      }
    }
  }

  void accept(int64_t row, int64_t col, const uint16_t* states) {
    const Block tile = block(row, col);
    pack_tile(job_.code(), states,
              job_.storage.arrays[0].data() + (row * tile_cols() + col) * tile_bytes(job_.code()));
    float values[kTileWeights];
    const float* factor = factors(scales_.level_factors(), tile);
    for (int r = 0; r < tile.rows; ++r, factor += job_.powers.blocks()) {
      for (int c = 0; c < kTileCols; ++c)
        values[r * kTileCols + c] = *factor * job_.table.level(states, tile_position(r, c));
    }
    matrix_.set_tile(tile, values);
  }

  void store_scales() { scales_.store(matrix_.row_factors(job_.pool).data()); }

 private:
  Block block(int64_t row, int64_t col) const {
    const int64_t first = row * kTileRows;
    return {first, std::min<int64_t>(kTileRows, matrix_.rows() - first), col * kTileCols,
            kTileCols};
  }
  // Returns the factors that belong to the tile's first row.
  const float* factors(const float* all, const Block& tile) const {
    return all + tile.row * job_.powers.blocks() + column_block(tile.col, matrix_.cols());
  }

  const FedBackTrellis& job_;
  TwoSidedMatrix& matrix_;
  FedBackScales scales_;
};

// Searches tiles of a diagonal, which do not depend on each other.
class DiagonalSearch {
 public:
  DiagonalSearch(const FedBackTrellis& job, TwoSidedTiles& tiles)
      : job_(job), tiles_(tiles), searches_(static_cast<size_t>(job.pool.size())) {}

  void on_host(const Diagonal& d) {
    constexpr int64_t kAtOnce = TrellisTable::kTilesAtOnce;
    job_.pool.for_each((d.count + kAtOnce - 1) / kAtOnce, [&](int64_t item, int thread) {
      auto& search = searches_[static_cast<size_t>(thread)];
      if (!search) {
        search = std::make_unique<TileSearch>(job_.table, seam_weights(job_.options.effort));
      }
      const int64_t first = item * kAtOnce, count = std::min(kAtOnce, d.count - first);
      float targets[kAtOnce * kTileWeights];
      uint16_t states[kAtOnce * kTileWeights];
      for (int64_t i = 0; i < count; ++i)
        set_targets(d, first + i, targets + i * kTileWeights);
      search->encode(targets, static_cast<int>(count), states);
      for (int64_t i = 0; i < count; ++i)
        accept(d, first + i, states + i * kTileWeights);
    });
  }

  void on(TileDevice& device, const Diagonal& d) {
    float* targets = device.targets(0, d.count);
    job_.pool.for_each(d.count, [&](int64_t i) { set_targets(d, i, targets + i * kTileWeights); });
    device.start(0, d.count);
    const uint16_t* states = device.finish(0);
    job_.pool.for_each(d.count, [&](int64_t i) { accept(d, i, states + i * kTileWeights); });
  }

 private:
  void set_targets(const Diagonal& d, int64_t i, float* targets) {
    tiles_.set_targets(d.first_row + i, d.first_col - i, targets);
  }
  void accept(const Diagonal& d, int64_t i, const uint16_t* states) {
    tiles_.accept(d.first_row + i, d.first_col - i, states);
  }

  const FedBackTrellis& job_;
  TwoSidedTiles& tiles_;
  std::vector<std::unique_ptr<TileSearch>> searches_;  // Each thread has one.
};

}  // namespace

void encode_trellis_two_sided(const EncodeCall& call) {
  std::optional<TileDeviceUse> use;
  if (call.device) use.emplace(*call.device);
  TwoSidedMatrix matrix(*call.feedback, *call.outputs);
  const FedBackTrellis job(call, matrix.row(0));
  TwoSidedTiles tiles(job, matrix);
  DiagonalSearch search(job, tiles);
  const int64_t rows = call.tensor.rows;
  for (const Diagonal& d : diagonals(tile_rows(rows), tiles.tile_cols())) {
    if (call.device) {
      search.on(*call.device, d);
    } else {
      search.on_host(d);
    }
  }
  tiles.store_scales();
  call.pool.for_each(tile_rows(rows), [&](int64_t item) {
    measure_rows(call, job.rotator, item * kTileRows, std::min(rows, (item + 1) * kTileRows));
  });
}

}  // namespace walsh::detail
