#include "codec/trellis/trellis_tensor.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "base/aligned.h"
#include "base/half.h"
#include "codec/trellis/tile_row_encoder.h"
#include "codec/trellis/trellis.h"
#include "codec/trellis/trellis_scales.h"
#include "codec/trellis/trellis_search.h"

namespace walsh::detail {
namespace {

// Holds what is known of a tensor before its tiles are searched. Any thread reads and measures rows
// of tiles with it.
class TrellisTensor {
 public:
  explicit TrellisTensor(const EncodeCall& call)
      : call_(call),
        tensor_(call.tensor),
        rotator_(tensor_.rotation[0], padded_cols(*tensor_.format, tensor_.cols)),
        powers_(measure_powers(rotator_, tensor_.rows, tensor_.cols, call.read_rows, call.pool)),
        scales_(fit_rank_one(powers_)),
        table_(tensor_.format->trellis),
        job_{tensor_, call.storage, table_, powers_, scales_} {
    if (code().block_scales) return;
    for (size_t b = 0; b < scales_.col.size(); ++b)
      call.storage.halves(2)[b] = f32_to_f16(scales_.col[b]);
  }

  const TrellisJob& job() const { return job_; }
  const TrellisCode& code() const { return tensor_.format->trellis; }
  const TrellisTable& table() const { return table_; }
  int64_t padded() const { return rotator_.size(); }
  int64_t cols() const { return tensor_.cols; }
  int64_t items() const { return tile_rows(tensor_.rows); }

  // Reads the rows of a row of tiles to rotated[kTileRows][padded]. Behind the last row these are
  // zeros.
  void read(int64_t item, float* rotated) const {
    const int64_t begin = item * kTileRows, rows = end_of(item) - begin;
    std::vector<float> source(static_cast<size_t>(rows * cols()));
    read_finite_rows(call_.read_rows, begin, end_of(item), cols(), source.data());
    for (int64_t r = 0; r < rows; ++r) {
      rotate_row(rotator_, source.data() + r * cols(), cols(), begin + r, rotated + r * padded());
    }
    std::fill(rotated + rows * padded(), rotated + kTileRows * padded(), 0.0f);
  }

  // Measures the error of a row of tiles that has been stored.
  void measure(int64_t item) const {
    measure_rows(call_, rotator_, item * kTileRows, end_of(item));
  }

 private:
  int64_t end_of(int64_t item) const { return std::min(tensor_.rows, (item + 1) * kTileRows); }

  const EncodeCall& call_;
  const Tensor& tensor_;
  Rotator rotator_;
  BlockPowers powers_;
  RankOneScales scales_;
  TrellisTable table_;
  TrellisJob job_;
};

// Holds the rows of tiles whose targets are on the device.
class TileBatch {
 public:
  TileBatch(const TrellisTensor& tensor, TileDevice& device, int slot)
      : tensor_(tensor), device_(device), slot_(slot) {}

  void start(int64_t first, int64_t count, ThreadPool& pool) {
    first_ = first;
    rows_.clear();
    rows_.resize(static_cast<size_t>(count));
    if (const auto size = static_cast<size_t>(count * kTileRows * tensor_.padded());
        rotated_.size() < size) {
      rotated_ = AlignedArray<float>(size);
    }
    const int64_t tiles = tensor_.padded() / kTileCols;
    float* targets = device_.targets(slot_, count * tiles);
    pool.for_each(count, [&](int64_t i) {
      tensor_.read(first + i, rotated(i));
      auto& row = rows_[static_cast<size_t>(i)];
      row = std::make_unique<TileRowEncoder>(tensor_.job(), (first + i) * kTileRows);
      row->set_targets(rotated(i), 0, tiles, targets + i * tiles * kTileWeights);
    });
    device_.start(slot_, count * tiles);
  }

  void finish(ThreadPool& pool) {
    if (rows_.empty()) return;
    const uint16_t* states = device_.finish(slot_);
    const int64_t tiles = tensor_.padded() / kTileCols;
    pool.for_each(static_cast<int64_t>(rows_.size()), [&](int64_t i) {
      TileRowEncoder& row = *rows_[static_cast<size_t>(i)];
      row.accept(rotated(i), 0, tiles, states + i * tiles * kTileWeights);
      row.store_scales();
      tensor_.measure(first_ + i);
    });
    rows_.clear();
  }

 private:
  float* rotated(int64_t i) { return rotated_.data() + i * kTileRows * tensor_.padded(); }

  const TrellisTensor& tensor_;
  TileDevice& device_;
  int slot_;
  int64_t first_ = 0;
  AlignedArray<float> rotated_;  // Its shape is [rows of tiles][kTileRows][padded].
  std::vector<std::unique_ptr<TileRowEncoder>> rows_;
};

// Encodes with a device that searches the tiles.
void encode_on(TileDevice& device, const TrellisTensor& job, const EncodeCall& call) {
  const TileDeviceUse use(device);
  device.prepare(job.code(), job.table(), seam_weights(call.options.effort));
  const int64_t wanted = std::max<int64_t>(1, device.batch_tiles() * kTileCols / job.padded());
  const int64_t items = std::min(wanted, job.items());
  TileBatch batches[2] = {{job, device, 0}, {job, device, 1}};
  int slot = 0;
  for (int64_t first = 0; first < job.items(); first += items, slot = 1 - slot) {
    batches[slot].start(first, std::min(items, job.items() - first), call.pool);
    batches[1 - slot].finish(call.pool);
  }
  batches[1 - slot].finish(call.pool);
}

}  // namespace

BlockPowers measure_powers(const Rotator& rotator, int64_t rows, int64_t cols, ReadRows read_rows,
                           ThreadPool& pool, float* kept) {
  BlockPowers powers(rows, rotator.size());
  pool.for_each(tile_rows(rows), [&](int64_t item) {
    const int64_t begin = item * kTileRows, end = std::min(rows, begin + kTileRows);
    std::vector<float> source(static_cast<size_t>((end - begin) * cols));
    std::vector<float> rotated(static_cast<size_t>(rotator.size()));
    read_finite_rows(read_rows, begin, end, cols, source.data());
    for (int64_t row = begin; row < end; ++row) {
      float* out = kept ? kept + row * rotator.size() : rotated.data();
      rotate_row(rotator, source.data() + (row - begin) * cols, cols, row, out);
      powers.set_row(row, out);
    }
  });
  return powers;
}

void encode_trellis(const EncodeCall& call) {
  const TrellisTensor job(call);
  if (call.device) return encode_on(*call.device, job, call);
  call.pool.for_each(job.items(), [&](int64_t item) {
    constexpr int64_t kTiles = TrellisTable::kTilesAtOnce;  // This many are searched together.
    std::vector<float> rotated(static_cast<size_t>(kTileRows * job.padded()));
    job.read(item, rotated.data());
    TileSearch search(job.table(), seam_weights(call.options.effort));
    TileRowEncoder row(job.job(), item * kTileRows);
    for (int64_t first = 0; first < row.tiles(); first += kTiles) {
      float targets[kTiles * kTileWeights];
      uint16_t states[kTiles * kTileWeights];
      const int64_t count = std::min(kTiles, row.tiles() - first);
      row.set_targets(rotated.data(), first, count, targets);
      search.encode(targets, static_cast<int>(count), states);
      row.accept(rotated.data(), first, count, states);
    }
    row.store_scales();
    job.measure(item);
  });
}

double rank_one_misfit(const Rotation& rotation, int64_t rows, int64_t cols, ReadRows read_rows,
                       ThreadPool& pool) {
  const Rotator rotator(rotation, (cols + 31) / 32 * 32);
  return fit_rank_one(measure_powers(rotator, rows, cols, read_rows, pool)).unexplained;
}

}  // namespace walsh::detail
