#include "model/cuda/coded_caches.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "kernels/cuda/products.h"
#include "walsh/error.h"

namespace walsh {
namespace {

int64_t page_count(int64_t positions) {
  return (positions + cuda::kPageTokens - 1) / cuda::kPageTokens;
}

// A window longer than the sequence is one of its length.
CacheTypes fitted(const CacheTypes& types, int64_t positions) {
  CacheTypes fit = types;
  fit.window = std::clamp<int64_t>(types.window, 0, positions);
  return fit;
}

int64_t unit_floor(int64_t position) {
  return position / kCacheUnit * kCacheUnit;
}

// Rows of a prompt, and those before it that are not stored yet.
int64_t fresh_capacity(const CacheTypes& types, int64_t max_rows) {
  return max_rows + types.window + kCacheUnit;
}

uint64_t rows_bytes(const ModelConfig& c, int64_t capacity) {
  uint64_t bytes = 2 * 2;  // keys and values, fp16
  const LayerWidths w = widest(c);
  for (const int64_t factor : {w.kv_heads, w.head_dim, capacity})
    bytes = checked_mul(bytes, static_cast<uint64_t>(factor), "KV cache");
  return bytes;
}

cuda::FreshRows rows_in(const cuda::Buffer& buffer, int64_t capacity) {
  cuda::FreshRows rows;
  rows.keys = buffer.as<uint16_t>();
  rows.values = rows.keys + buffer.bytes() / 2 / sizeof(uint16_t);
  rows.capacity = capacity;
  return rows;
}

}  // namespace

CudaCodedCaches::CudaCodedCaches(const Model& model, const cuda::PageTable& table,
                                 int64_t positions, int64_t sequences, int64_t max_rows)
    : table_(table),
      sequences_(static_cast<size_t>(sequences)),
      kept_(static_cast<uint64_t>(sequences) * sizeof(int32_t), true) {
  const ModelConfig& c = model.config;
  const CacheTypes types = fitted(model.cache, positions);
  window_ = types.window;
  for (const LayerDesc& layer : c.layers) {
    const AttentionDesc& a = layer.attention;
    layers_.emplace_back(types, static_cast<int>(a.kv_heads), static_cast<int>(a.head_dim),
                         page_count(positions) * sequences, sequences);
  }
  const int64_t fresh = fresh_capacity(types, max_rows);
  const int64_t old = round_up(positions, int64_t{kCacheUnit});
  fresh_ = cuda::Buffer(rows_bytes(c, fresh));
  old_ = cuda::Buffer(rows_bytes(c, old));
  fresh_rows_ = rows_in(fresh_, fresh);
  old_rows_ = rows_in(old_, old);
}

uint64_t CudaCodedCaches::bytes(const ModelConfig& c, const CacheTypes& types, int64_t positions,
                                int64_t sequences) {
  uint64_t sum = 0;
  for (const LayerDesc& layer : c.layers) {
    const AttentionDesc& a = layer.attention;
    sum =
        checked_add(sum,
                    cuda::CodedCache::bytes(fitted(types, positions), static_cast<int>(a.kv_heads),
                                            static_cast<int>(a.head_dim),
                                            page_count(positions) * sequences, sequences),
                    "KV cache");
  }
  return sum;
}

uint64_t CudaCodedCaches::workspace_bytes(const ModelConfig& c, const CacheTypes& types,
                                          int64_t positions, int64_t max_rows) {
  return checked_add(rows_bytes(c, fresh_capacity(fitted(types, positions), max_rows)),
                     rows_bytes(c, round_up(positions, int64_t{kCacheUnit})), "KV cache");
}

int64_t CudaCodedCaches::stored_end(const Sequence& sequence, int64_t position) const {
  return std::max(sequence.stored, unit_floor(std::max<int64_t>(0, position - window_)));
}

void CudaCodedCaches::start(std::span<const Run> runs, int64_t longest, bool decoding,
                            cuda::Stream stream) {
  steps_.clear();
  longest_ = longest;
  decoding_ = decoding;
  int64_t row = 0, fresh = 0;
  for (const Run& run : runs) {
    const Sequence& sequence = sequences_[static_cast<size_t>(run.sequence)];
    if (run.position != sequence.length) take_back(run.sequence, run.position, stream);
    if (!sequence.known) upload_kept(run.sequence, stream);
    const int64_t end = run.position + run.rows;
    steps_.push_back({run, row, sequence.stored, stored_end(sequence, end - 1), fresh});
    row += run.rows;
    fresh += end - sequence.stored;
  }
  if (!decoding_ && fresh > fresh_rows_.capacity) {
    throw Error(ErrorCode::internal, "KV cache",
                fmt::format("{} prompts in a batch need {} rows, {} are there", runs.size(), fresh,
                            fresh_rows_.capacity));
  }
}

// What is stored stays so, but for the last unit, if positions of it are lost.
void CudaCodedCaches::take_back(int64_t index, int64_t position, cuda::Stream stream) {
  Sequence& sequence = sequences_[static_cast<size_t>(index)];
  if (position > sequence.length) {
    throw Error(ErrorCode::internal, "KV cache",
                fmt::format("position {} of a sequence of {}: it has to be reset after a batch "
                            "that failed",
                            position, sequence.length));
  }
  const bool restored = position < sequence.stored && position % kCacheUnit != 0;
  const int64_t stored = std::min(sequence.stored, unit_floor(position));
  sequence = {0, 0, false};  // should one of the launches fail
  if (restored) {
    const auto unit = static_cast<int>(stored / kCacheUnit);
    for (int64_t layer = 0; layer < static_cast<int64_t>(layers_.size()); ++layer)
      cuda::restore_units(view(layer), {static_cast<int>(index), unit, unit + 1}, stream);
  }
  sequence.stored = stored;
  upload_kept(index, stream);
  sequence.length = position;
}

void CudaCodedCaches::upload_kept(int64_t index, cuda::Stream stream) {
  Sequence& sequence = sequences_[static_cast<size_t>(index)];
  const auto kept = static_cast<int32_t>(sequence.stored);
  sequence.known = false;  // should the copy fail
  cuda::copy_to_device(kept_.as<int32_t>() + index, &kept, sizeof kept, stream);
  sequence.known = true;
}

cuda::CodedView CudaCodedCaches::view(int64_t layer) const {
  return layers_[static_cast<size_t>(layer)].view(table_, kept_.as<const int32_t>());
}

void CudaCodedCaches::keep(int64_t layer, const cuda::RopeCall& rope, const cuda::RowPlaces& rows,
                           cuda::Stream stream) const {
  const cuda::CodedView cache = view(layer);
  if (decoding_) {
    cuda::keep_rows(rope, cache, rows, nullptr, stream);
    cuda::store_units(cache, rows, rope.m, stream);
    return;
  }
  for (const Step& step : steps_)
    keep_prompt(cache, step, rope, rows, stream);
}

cuda::FreshRows CudaCodedCaches::fresh_of(const Step& step) const {
  cuda::FreshRows fresh = fresh_rows_;
  const int64_t at = step.fresh * layers_.front().head_dim();
  fresh.keys += at;
  fresh.values += at;
  fresh.first = static_cast<int>(step.before);
  return fresh;
}

void CudaCodedCaches::keep_prompt(const cuda::CodedView& cache, const Step& step,
                                  const cuda::RopeCall& rope, const cuda::RowPlaces& rows,
                                  cuda::Stream stream) const {
  const auto sequence = static_cast<int>(step.run.sequence);
  const auto begin = static_cast<int>(step.run.position), before = static_cast<int>(step.before);
  const auto stored = static_cast<int>(step.stored);
  const int end = begin + static_cast<int>(step.run.rows);
  const cuda::FreshRows fresh = fresh_of(step);
  cuda::RopeCall call = rope;
  call.q += step.row * call.ldq;
  call.k += step.row * call.ldk;
  call.v += step.row * call.ldv;
  call.m = step.run.rows;
  cuda::copy_from_ring(cache, sequence, before, begin, fresh, stream);
  cuda::keep_rows(call, cache, rows.from(step.row), &fresh, stream);
  cuda::store_units(cache, {sequence, before / kCacheUnit, stored / kCacheUnit}, fresh, stream);
  cuda::copy_to_ring(cache, sequence, stored, end, fresh, stream);
}

void CudaCodedCaches::attend(int64_t layer, const cuda::AttentionRows& attention, int64_t skip,
                             const cuda::AttentionScratch& scratch, cuda::Stream stream) const {
  const cuda::CodedView cache = view(layer);
  if (decoding_) {
    for (int64_t row = skip; row < attention.m; row += cuda::kMaxVectors) {
      const int64_t end = std::min(attention.m, row + cuda::kMaxVectors);
      cuda::attend_rows({attention.part(row, end), &cache}, longest_, scratch, stream);
    }
    return;
  }
  for (const Step& step : steps_) {
    const int64_t begin = std::max(step.row, skip), end = step.row + step.run.rows;
    if (begin < end) attend_prompt(cache, step, attention.part(begin, end), stream);
  }
}

// `attention`: of the run's last rows.
void CudaCodedCaches::attend_prompt(const cuda::CodedView& cache, const Step& step,
                                    const cuda::AttentionRows& attention,
                                    cuda::Stream stream) const {
  const int64_t first = step.run.position + step.run.rows - attention.m;
  const int64_t window = attention.window;
  const int64_t seen = window > 0 ? std::max<int64_t>(0, first + 1 - window) : 0;
  const cuda::UnitRange units{static_cast<int>(step.run.sequence),
                              static_cast<int>(std::min(seen, step.stored) / kCacheUnit),
                              static_cast<int>(step.stored / kCacheUnit)};
  cuda::CodedView old = cache;
  if (window > 0) old.keys.sinks = old.values.sinks = nullptr;
  cuda::load_units(old, units, old_rows_, stream);
  cuda::attend_prompt({attention, &cache}, fresh_of(step), old_rows_, static_cast<int>(first),
                      stream);
}

void CudaCodedCaches::abandon() {
  for (const Step& step : steps_)
    sequences_[static_cast<size_t>(step.run.sequence)] = {0, 0, false};
  steps_.clear();
}

void CudaCodedCaches::finish() {
  for (const Step& step : steps_) {
    Sequence& sequence = sequences_[static_cast<size_t>(step.run.sequence)];
    sequence.length = step.run.position + step.run.rows;
    sequence.stored = step.stored;
  }
}

}  // namespace walsh
