#include "codec/trellis/cuda/gpu_tiles.h"

#include <algorithm>
#include <utility>

#include "base/stop.h"
#include "codec/trellis/trellis.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

using encoding::FeedbackArgs;
using encoding::TileColumn;
using encoding::TileSearchArgs;
using encoding::TileSearchPlan;

constexpr int64_t kMostGroup = 8;
// Rows with at most this many weights are fed back together. A weight takes 22 bytes of device
// memory and 4 of pinned memory.
constexpr int64_t kFedBackWeights = int64_t{1} << 27;

void grow(Buffer& buffer, uint64_t bytes) {
  if (buffer.bytes() >= bytes) return;
  // The old memory is freed first, because there may not be room for both.
  buffer = {};
  buffer = Buffer(bytes);
}

void grow(PinnedBuffer& buffer, uint64_t bytes) {
  if (buffer.bytes() >= bytes) return;
  buffer = {};
  buffer = PinnedBuffer(bytes);
}

constexpr uint64_t target_bytes(int64_t tiles) {
  return static_cast<uint64_t>(tiles * kTileWeights) * sizeof(float);
}
constexpr uint64_t state_bytes(int64_t tiles) {
  return static_cast<uint64_t>(tiles * kTileWeights) * sizeof(uint16_t);
}

}  // namespace

GpuTiles::~GpuTiles() {
  GpuTiles::release();
}

// Frees the device's memory. If the device has failed, there is no pending work to wait for. Pinned
// memory is kept, because it takes longer to allocate.
void GpuTiles::release() {
  try {
    synchronize(copy_.get());
    synchronize(work_.get());
  } catch (const Error&) {
  }
  tables_ = {};
  best_ = {};
  for (Slot& slot : slots_)
    slot.targets = slot.states = {};
  PinnedBuffer rows = std::move(feedback_.x);
  feedback_ = {};
  feedback_.x = std::move(rows);
}

bool GpuTiles::searches(const Format& format) const {
  const TrellisCode& code = format.trellis;
  return encoding::has_tile_search(code) &&
         encoding::plan_tile_floats(code, kMostGroup * device_.multiprocessors, device_)
                 .shared_bytes <= device_.shared_bytes;
}

void GpuTiles::prepare(const TrellisCode& code, const detail::TrellisTable&, int seam_weights) {
  synchronize(work_.get());
  code_ = code;
  seam_ = seam_weights;
  tables_ = encoding::TileSearchTables(code, work_.get());
}

int64_t GpuTiles::batch_tiles() const {
  return batch_waves_ * kMostGroup * device_.multiprocessors;
}

float* GpuTiles::targets(int slot, int64_t tiles) {
  Slot& s = slots_[slot];
  s.sent.wait();
  grow(s.host_targets, target_bytes(tiles));
  return s.host_targets.as<float>();
}

void GpuTiles::start(int slot, int64_t tiles) {
  Slot& s = slots_[slot];
  s.done.wait();
  grow(s.targets, target_bytes(tiles));
  grow(s.states, state_bytes(tiles));
  grow(s.host_states, state_bytes(tiles));
  copy_to_device(s.targets.as(), s.host_targets.as(), target_bytes(tiles), copy_.get());
  s.sent.record(copy_.get());
  s.sent.hold_back(work_.get());
  search(s.targets.as<float>(), s.states.as<uint16_t>(), tiles);
  copy_to_host(s.host_states.as(), s.states.as(), state_bytes(tiles), work_.get());
  s.done.record(work_.get());
}

const uint16_t* GpuTiles::finish(int slot) {
  slots_[slot].done.wait();
  return slots_[slot].host_states.as<uint16_t>();
}

void GpuTiles::search(const float* targets, uint16_t* states, int64_t tiles) {
  const TileSearchPlan plan = encoding::plan_tile_search(code_, tiles, device_);
  if (best_.bytes() < plan.best_bytes) synchronize(work_.get());
  grow(best_, plan.best_bytes);
  TileSearchArgs args = tables_.args(plan);
  args.seam = seam_;
  args.tiles = tiles;
  args.targets = targets;
  args.states = states;
  args.best = best_.as();
  encoding::launch_tile_search(code_, plan, args, work_.get());
}

int64_t GpuTiles::fed_back_rows(int64_t cols) const {
  return std::max<int64_t>(1, kFedBackWeights / cols / kTileRows) * kTileRows;
}

float* GpuTiles::rows(int64_t count, int64_t cols) {
  const int64_t tiles = tile_rows(count) * (cols / kTileCols);
  grow(feedback_.x,
       std::max(static_cast<uint64_t>(count * cols) * sizeof(float), state_bytes(tiles)));
  return feedback_.x.as<float>();
}

// Copies all arguments of the kernels to the device, except the factor.
FeedbackArgs GpuTiles::send(const detail::FedBackRows& rows) {
  const int64_t size = rows.feedback.size(), blocks = column_blocks(size);
  const auto weights = static_cast<uint64_t>(rows.rows * size);
  const auto factors = static_cast<uint64_t>(rows.rows * blocks) * sizeof(float);
  std::vector<float> diagonal, inverse;
  for (int64_t j = 0; j < size; ++j) {
    diagonal.push_back(rows.feedback.row(j)[j]);
    inverse.push_back(1 / diagonal.back());
  }
  const Stream stream = work_.get();
  const auto send_to = [&](Buffer& buffer, const void* host, uint64_t bytes) {
    grow(buffer, bytes);
    copy_to_device(buffer.as(), host, bytes, stream);
    return buffer.as<float>();
  };
  FeedbackArgs args;
  args.rows = rows.rows;
  args.size = size;
  args.blocks = blocks;
  args.diagonal = send_to(feedback_.diagonal, diagonal.data(), diagonal.size() * sizeof(float));
  args.inverse = send_to(feedback_.inverse, inverse.data(), inverse.size() * sizeof(float));
  args.target_factors = send_to(feedback_.scales[0], rows.target_factors, factors);
  args.level_factors = send_to(feedback_.scales[1], rows.level_factors, factors);
  grow(feedback_.matrices, 5 * weights * sizeof(float));
  float* matrix[5];
  for (uint64_t i = 0; i < 5; ++i)
    matrix[i] = feedback_.matrices.as<float>() + i * weights;
  copy_to_device(matrix[0], rows.x, weights * sizeof(float), stream);
  args.x = matrix[0];
  args.rounded = matrix[1];
  args.errors = matrix[2];
  args.sums = matrix[3];
  args.products = matrix[4];
  fill_zero(args.sums, 2 * weights * sizeof(float), stream);  // This clears the products as well.
  synchronize(stream);  // `inverse` goes out of scope, and rows.x receives the states.
  return args;
}

// Sends the factor of a block of columns. The kernels of the block before the previous one have
// ended by then.
void GpuTiles::send_factor(const ErrorFeedback& feedback, int64_t begin) {
  const int64_t size = feedback.size();
  if (begin >= size) return;
  const int64_t rows = std::min(encoding::kFeedbackColumns, size - begin);
  Buffer& buffer = feedback_.factor[begin / encoding::kFeedbackColumns % 2];
  grow(buffer, static_cast<uint64_t>(encoding::kFeedbackColumns * size) * sizeof(float));
  copy_to_device(buffer.as(), feedback.row(begin),
                 static_cast<uint64_t>(rows * size) * sizeof(float), copy_.get());
  feedback_.sent.record(copy_.get());
}

void GpuTiles::encode_columns(FeedbackArgs args, const ErrorFeedback& feedback) {
  const Stream stream = work_.get();
  const int64_t tiles = tile_rows(args.rows);
  const encoding::LevelTable table{tables_.levels(), code_.unit, code_.step_bits, code_.state_bits};
  send_factor(feedback, 0);
  for (int64_t begin = 0; begin < args.size; begin += encoding::kFeedbackColumns) {
    const int64_t end = std::min(args.size, begin + encoding::kFeedbackColumns);
    feedback_.sent.hold_back(stream);
    args.factor = feedback_.factor[begin / encoding::kFeedbackColumns % 2].as<float>();
    args.first = begin;
    for (int64_t col = begin; col < end; col += kTileCols) {
      uint16_t* states = feedback_.states.as<uint16_t>() + col / kTileCols * tiles * kTileWeights;
      const TileColumn column{col, column_block(col, args.size), feedback_.targets.as<float>(),
                              states};
      encoding::launch_targets(args, column, stream);
      search(column.targets, states, tiles);
      encoding::launch_set(args, column, table, stream);
    }
    if (end < args.size) {
      encoding::launch_product(args, {args.errors, args.sums, begin, end, end}, stream);
    }
    encoding::launch_product(args, {args.rounded, args.products, begin, end, begin}, stream);
    send_factor(feedback, end);  // The kernels run meanwhile.
    synchronize(stream);
    check_stop();
  }
}

const uint16_t* GpuTiles::feed_back(const detail::FedBackRows& rows) {
  const FeedbackArgs args = send(rows);
  const int64_t row_tiles = tile_rows(args.rows);
  const int64_t tiles = row_tiles * (args.size / kTileCols);
  grow(feedback_.targets, target_bytes(row_tiles));
  grow(feedback_.states, state_bytes(tiles));
  grow(feedback_.row_factors, static_cast<uint64_t>(args.rows) * sizeof(double));
  encode_columns(args, rows.feedback);
  encoding::launch_row_factors(args, feedback_.row_factors.as<double>(), work_.get());
  copy_to_host(rows.row_factors, feedback_.row_factors.as(),
               static_cast<uint64_t>(args.rows) * sizeof(double), work_.get());
  copy_to_host(feedback_.x.as(), feedback_.states.as(), state_bytes(tiles), work_.get());
  synchronize(work_.get());
  return feedback_.x.as<uint16_t>();
}

}  // namespace walsh::cuda
