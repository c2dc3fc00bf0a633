#include "quantize/trellis/trellis_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "formats/trellis.h"
#include "quantize/scalar/encoder_search.h"
#include "quantize/trellis/trellis_scales.h"
#include "quantize/trellis/trellis_search.h"

namespace walsh::detail {
namespace {

constexpr float kLargestHalf = 65504;
// Beyond every level; a larger target would only overflow the costs.
constexpr float kLargestTarget = 64;
constexpr int kTiles = TrellisTable::kTilesAtOnce;  // that are searched together

// Sets the codes of one row of tiles and the scales of its rows.
class TileRowEncoder {
 public:
  TileRowEncoder(const Tensor& tensor, const EncodeOptions& options, const TrellisTable& table,
                 const BlockPowers& powers, const RankOneScales& scales,
                 const TensorStorage& storage)
      : code_(tensor.format->trellis),
        rows_(tensor.rows),
        padded_(padded_cols(*tensor.format, tensor.cols)),
        blocks_(powers.blocks()),
        powers_(powers),
        scales_(scales),
        storage_(storage),
        table_(table),
        search_(table, seam_weights(options.effort)) {}

  // x[kTileRows][padded]: rotated rows from row `row` on, zeros beyond the last one.
  void encode(int64_t row, const float* x) {
    set_start_scales(row);
    std::memset(xq_, 0, sizeof(xq_));
    std::memset(qq_, 0, sizeof(qq_));
    block_xq_.assign(static_cast<size_t>(kTileRows * blocks_), 0.0);
    block_qq_.assign(block_xq_.size(), 0.0);
    std::byte* tile =
        storage_.arrays[0].data() + row / kTileRows * (padded_ / kTileCols) * tile_bytes(code_);
    for (int64_t col = 0; col < padded_; col += kTiles * kTileCols) {
      const auto tiles = static_cast<int>(std::min<int64_t>(kTiles, (padded_ - col) / kTileCols));
      encode_tiles(x, col, tiles, tile);
      tile += tiles * tile_bytes(code_);
    }
    store_scales(row);
  }

 private:
  // The product of scales that a row's block starts with; 0 where all is zero.
  float& start(int row, int64_t block) {
    return start_[static_cast<size_t>(row * blocks_ + block)];
  }

  void set_start_scales(int64_t first) {
    start_.assign(static_cast<size_t>(kTileRows * blocks_), 0.0f);
    const int64_t rows = std::min<int64_t>(kTileRows, rows_ - first);
    for (int r = 0; r < rows; ++r) {
      for (int64_t b = 0; b < blocks_; ++b) {
        const auto power = static_cast<size_t>((first + r) * blocks_ + b);
        start(r, b) = code_.block_scales
                          ? static_cast<float>(std::sqrt(powers_.mean[power]))
                          : std::min(scales_.row[static_cast<size_t>(first + r)], kLargestHalf) *
                                scales_.col[static_cast<size_t>(b)];
      }
    }
  }

  // `tiles` tiles of columns from `col` on.
  void encode_tiles(const float* x, int64_t col, int tiles, std::byte* out) {
    float targets[kTiles * kTileWeights] = {};
    uint16_t states[kTiles * kTileWeights];
    for (int i = 0; i < tiles; ++i)
      set_targets(x + col + i * kTileCols, column_block(col + i * kTileCols, padded_),
                  targets + i * kTileWeights);
    search_.encode(targets, tiles, states);
    for (int i = 0; i < tiles; ++i) {
      const uint16_t* of_tile = states + i * kTileWeights;
      pack_tile(code_, of_tile, out + i * tile_bytes(code_));
      add_products(x + col + i * kTileCols, column_block(col + i * kTileCols, padded_), of_tile);
    }
  }

  void set_targets(const float* x, int64_t block, float* targets) {
    for (int r = 0; r < kTileRows; ++r) {
      const float scale = code_.prescale * start(r, block);
      const float inverse = scale > 0 && std::isnormal(1 / scale) ? 1 / scale : 0.0f;
      for (int c = 0; c < kTileCols; ++c) {
        targets[tile_position(r, c)] =
            std::clamp(x[r * padded_ + c] * inverse, -kLargestTarget, kLargestTarget);
      }
    }
  }

  // Sums for the least-squares scales of the rows.
  void add_products(const float* x, int64_t block, const uint16_t* states) {
    const double col =
        code_.block_scales ? 1.0 : static_cast<double>(scales_.col[static_cast<size_t>(block)]);
    for (int r = 0; r < kTileRows; ++r) {
      double xq = 0, qq = 0;
      for (int c = 0; c < kTileCols; ++c) {
        const int t = tile_position(r, c);
        const int state = states[t / code_.values];
        const double q =
            col *
            static_cast<double>(table_.levels.data()[t % code_.values * table_.states() + state]);
        xq += static_cast<double>(x[r * padded_ + c]) * q;
        qq += q * q;
      }
      xq_[r] += xq;
      qq_[r] += qq;
      block_xq_[static_cast<size_t>(r * blocks_ + block)] += xq;
      block_qq_[static_cast<size_t>(r * blocks_ + block)] += qq;
    }
  }

  static uint16_t refit(double xq, double qq) {
    if (!(xq > 0) || !(qq > 0)) return 0;
    return saturated_half(static_cast<float>(std::min(xq / qq, 1e30)), kLargestHalf);
  }

  void store_scales(int64_t first) {
    uint16_t* out = storage_.halves(1);
    const int64_t rows = std::min<int64_t>(kTileRows, rows_ - first);
    for (int r = 0; r < rows; ++r) {
      if (!code_.block_scales) {
        out[first + r] = refit(xq_[r], qq_[r]);
        continue;
      }
      for (int64_t b = 0; b < blocks_; ++b) {
        const auto i = static_cast<size_t>(r * blocks_ + b);
        out[(first + r) * blocks_ + b] = refit(block_xq_[i], block_qq_[i]);
      }
    }
  }

  const TrellisCode& code_;
  int64_t rows_, padded_, blocks_;
  const BlockPowers& powers_;
  const RankOneScales& scales_;
  const TensorStorage& storage_;
  const TrellisTable& table_;
  TileSearch search_;
  std::vector<float> start_;                 // [kTileRows][blocks]
  double xq_[kTileRows], qq_[kTileRows];     // <x, q>, <q, q> per row
  std::vector<double> block_xq_, block_qq_;  // the same per row and block
};

}  // namespace

BlockPowers measure_powers(const Rotator& rotator, int64_t rows, int64_t cols, ReadRows read_rows,
                           ThreadPool& pool) {
  BlockPowers powers(rows, rotator.size());
  pool.for_each(tile_rows(rows), [&](int64_t item) {
    const int64_t begin = item * kTileRows, end = std::min(rows, begin + kTileRows);
    std::vector<float> source(static_cast<size_t>((end - begin) * cols));
    std::vector<float> rotated(static_cast<size_t>(rotator.size()));
    read_finite_rows(read_rows, begin, end, cols, source.data());
    for (int64_t row = begin; row < end; ++row) {
      rotate_row(rotator, source.data() + (row - begin) * cols, cols, row, rotated.data());
      powers.set_row(row, rotated.data());
    }
  });
  return powers;
}

void encode_trellis(const Tensor& tensor, const EncodeOptions& options, ReadRows read_rows,
                    const TensorStorage& storage, ThreadPool& pool, ErrorSum& errors) {
  const TrellisCode& code = tensor.format->trellis;
  const int64_t rows = tensor.rows, cols = tensor.cols;
  const int64_t padded = padded_cols(*tensor.format, cols);
  const Rotator rotator(tensor.rotation[0], padded);
  const BlockPowers powers = measure_powers(rotator, rows, cols, read_rows, pool);
  const RankOneScales scales = fit_rank_one(powers);
  if (!code.block_scales) {
    for (size_t b = 0; b < scales.col.size(); ++b)
      storage.halves(2)[b] = f32_to_f16(scales.col[b]);
  }
  const TrellisTable table(code);
  pool.for_each(tile_rows(rows), [&](int64_t item) {
    const int64_t begin = item * kTileRows, end = std::min(rows, begin + kTileRows);
    std::vector<float> source(static_cast<size_t>((end - begin) * cols));
    std::vector<float> rotated(static_cast<size_t>(kTileRows * padded));
    read_finite_rows(read_rows, begin, end, cols, source.data());
    for (int64_t row = begin; row < end; ++row) {
      rotate_row(rotator, source.data() + (row - begin) * cols, cols, row,
                 rotated.data() + (row - begin) * padded);
    }
    TileRowEncoder(tensor, options, table, powers, scales, storage).encode(begin, rotated.data());
    for (int64_t row = begin; row < end; ++row) {
      float* x = source.data() + (row - begin) * cols;
      const double norm = squared_length(x, cols);
      decode_pass_row(tensor, 0, row, rotated.data());
      rotator.invert(rotated.data());
      for (int64_t i = 0; i < cols; ++i)
        x[i] -= rotated[static_cast<size_t>(i)];
      errors.set(row, squared_length(x, cols), norm);
    }
  });
}

double rank_one_misfit(const Rotation& rotation, int64_t rows, int64_t cols, ReadRows read_rows,
                       ThreadPool& pool) {
  const Rotator rotator(rotation, (cols + 31) / 32 * 32);
  return fit_rank_one(measure_powers(rotator, rows, cols, read_rows, pool)).unexplained;
}

}  // namespace walsh::detail
