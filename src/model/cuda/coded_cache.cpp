#include "model/cuda/coded_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "kernels/cuda/gemv/gemv.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// A batch may have this many prompts. This bounds the room for their positions that are not stored
// yet.
constexpr int64_t kMostPrompts = 16;

// Returns the types with the window cut to the length of a sequence.
CacheTypes fitted(const CacheTypes& types, int64_t positions) {
  CacheTypes fit = types;
  fit.window = std::clamp<int64_t>(types.window, 0, positions);
  return fit;
}

int64_t bundle_floor(int64_t position) {
  return position / kCacheBundle * kCacheBundle;
}

// Returns how many rows a batch's prompts have at most, with the rows before each prompt that are
// not stored yet.
int64_t fresh_capacity(const CacheTypes& types, const KvShape& shape, int64_t max_rows) {
  return max_rows + CudaCodedCache::max_prompts(shape) * (types.window + kCacheBundle);
}

uint64_t rows_bytes(const ModelConfig& c, int64_t capacity) {
  uint64_t bytes = 2 * 2;  // A number of keys and one of values take 2 bytes each.
  const LayerWidths w = widest(c);
  for (const int64_t factor : {w.kv_heads, w.head_dim, capacity})
    bytes = checked_mul(bytes, static_cast<uint64_t>(factor), "KV cache");
  return bytes;
}

// Returns the part of a call that covers `rows` rows from row `first` on.
cuda::RopeCall rope_part(const cuda::RopeCall& rope, int64_t first, int64_t rows) {
  cuda::RopeCall part = rope;
  part.q += first * part.ldq;
  if (part.k != nullptr) {
    part.k += first * part.ldk;
    part.v += first * part.ldv;
  }
  part.m = rows;
  return part;
}

cuda::FreshRows rows_in(const cuda::Buffer& buffer, int64_t capacity) {
  cuda::FreshRows rows;
  rows.keys = buffer.as<uint16_t>();
  rows.values = rows.keys + buffer.bytes() / 2 / sizeof(uint16_t);
  rows.capacity = capacity;
  return rows;
}

}  // namespace

CudaCodedCache::CudaCodedCache(const ModelConfig& c, const CacheTypes& wanted,
                               const cuda::PageTable& table, const KvShape& shape, int64_t max_rows)
    : table_(table),
      sequences_(static_cast<size_t>(shape.sequences)),
      kept_(static_cast<uint64_t>(shape.sequences) * sizeof(int32_t), true) {
  const CacheTypes types = fitted(wanted, shape.capacity);
  window_ = types.window;
  for (const LayerDesc& layer : c.layers) {
    const AttentionDesc& a = layer.attention;
    // Recurrent layers have no keys; other layers here read those of earlier ones.
    if (!a.has_cache()) {
      layers_.emplace_back();
      continue;
    }
    layers_.emplace_back(types, static_cast<int>(a.kv_heads), static_cast<int>(a.head_dim),
                         shape.pages, shape.sequences);
  }
  const int64_t fresh = fresh_capacity(types, shape, max_rows);
  const int64_t old = round_up(shape.capacity, int64_t{kCacheBundle});
  fresh_ = cuda::Buffer(rows_bytes(c, fresh));
  old_ = cuda::Buffer(rows_bytes(c, old));
  fresh_rows_.assign(c.layers.size(), rows_in(fresh_, fresh));
  // Rows of layers that later layers read are kept until those have run.
  kept_fresh_.resize(c.layers.size());
  for (const LayerDesc& layer : c.layers) {
    if (layer.attention.cache_of < 0) continue;
    const auto from = static_cast<size_t>(layer.attention.cache_of);
    if (kept_fresh_[from].bytes() > 0) continue;
    kept_fresh_[from] = cuda::Buffer(rows_bytes(c, fresh));
    fresh_rows_[from] = rows_in(kept_fresh_[from], fresh);
  }
  old_rows_ = rows_in(old_, old);
  std::vector<cuda::CodedView> views;
  for (int64_t layer = 0; layer < static_cast<int64_t>(layers_.size()); ++layer)
    if (!layers_[static_cast<size_t>(layer)].empty()) views.push_back(view(layer));
  on_device_ = cuda::layers_on_device(views);
}

int64_t CudaCodedCache::max_prompts(const KvShape& shape) {
  return std::min(shape.sequences, kMostPrompts);
}

int64_t CudaCodedCache::stored_end(const Sequence& sequence, int64_t position) const {
  return std::max(sequence.stored, bundle_floor(std::max<int64_t>(0, position - window_)));
}

void CudaCodedCache::start(std::span<const Run> runs, std::span<const RowGroup> groups,
                           cuda::Stream stream) {
  groups_ = groups;
  plans_.clear();
  int64_t row = 0, fresh = 0;
  for (const Run& run : runs) {
    const Sequence& sequence = sequences_[static_cast<size_t>(run.sequence)];
    if (run.position != sequence.length) take_back(run.sequence, run.position, stream);
    if (!sequence.known) upload_kept(run.sequence, stream);
    const int64_t end = run.position + run.rows;
    plans_.push_back({run, row, sequence.stored, stored_end(sequence, end - 1), fresh});
    row += run.rows;
    if (run.rows > 1) fresh += end - sequence.stored;
  }
  if (fresh > fresh_rows_.front().capacity) {
    throw Error(ErrorCode::internal, "KV cache",
                fmt::format("{} prompts in a batch need {} rows, {} are there", runs.size(), fresh,
                            fresh_rows_.front().capacity));
  }
}

// This rewrites no rows of the current batch: such a bundle always holds rows of earlier steps.
void CudaCodedCache::store_ahead(cuda::Stream stream) const {
  for (const RunPlan& plan : plans_) {
    if (plan.stored == plan.before) continue;
    const auto bundle = static_cast<int>(plan.before / kCacheBundle);
    for (const cuda::CodedLayers& layers : on_device_)
      cuda::store_bundle(layers, static_cast<int>(plan.run.sequence), bundle, stream);
  }
}

void CudaCodedCache::copy_page(const PageCopy& copy, cuda::Stream stream) const {
  for (const cuda::CodedLayer& layer : layers_)
    if (!layer.empty()) layer.copy_page(copy.from, copy.to, stream);
}

void CudaCodedCache::fork(int64_t from, int64_t to, cuda::Stream stream) {
  for (const cuda::CodedLayer& layer : layers_)
    if (!layer.empty()) layer.copy_sequence(from, to, stream);
  sequences_[static_cast<size_t>(to)] = sequences_[static_cast<size_t>(from)];
  upload_kept(to, stream);
}

// Stored positions stay stored, except those of the last bundle if the text is cut within it.
void CudaCodedCache::take_back(int64_t index, int64_t position, cuda::Stream stream) {
  Sequence& sequence = sequences_[static_cast<size_t>(index)];
  if (position > sequence.length) {
    throw Error(ErrorCode::internal, "KV cache",
                fmt::format("position {} of a sequence of {}: it has to be reset after a batch "
                            "that failed",
                            position, sequence.length));
  }
  const bool restored = position < sequence.stored && position % kCacheBundle != 0;
  const int64_t stored = std::min(sequence.stored, bundle_floor(position));
  sequence = {0, 0, false};  // This state holds in case one of the launches fails.
  if (restored) {
    const auto bundle = static_cast<int>(stored / kCacheBundle);
    for (int64_t layer = 0; layer < static_cast<int64_t>(layers_.size()); ++layer) {
      if (!layers_[static_cast<size_t>(layer)].empty())
        cuda::restore_bundles(view(layer), {static_cast<int>(index), bundle, bundle + 1}, stream);
    }
  }
  sequence.stored = stored;
  upload_kept(index, stream);
  sequence.length = position;
}

void CudaCodedCache::upload_kept(int64_t index, cuda::Stream stream) {
  Sequence& sequence = sequences_[static_cast<size_t>(index)];
  const auto kept = static_cast<int32_t>(sequence.stored);
  sequence.known = false;  // This state holds in case the copy fails.
  cuda::copy_to_device(kept_.as<int32_t>() + index, &kept, sizeof kept, stream);
  sequence.known = true;
}

cuda::CodedView CudaCodedCache::view(int64_t layer) const {
  return layers_[static_cast<size_t>(layer)].view(table_, kept_.as<const int32_t>());
}

void CudaCodedCache::keep(int64_t layer, const cuda::RopeCall& rope, const cuda::RowPlaces& rows,
                          cuda::Stream stream) const {
  const cuda::CodedView cache = view(layer);
  if (rope.k == nullptr) return cuda::keep_rows(rope, cache, rows, nullptr, stream);
  for (const RowGroup& group : groups_) {
    if (!group.single) {
      keep_prefill(layer, plans_[group.run], rope, rows, stream);
      continue;
    }
    cuda::keep_rows(rope_part(rope, group.first, group.rows), cache, rows.from(group.first),
                    nullptr, stream);
    cuda::store_bundles(cache, rows.from(group.first), group.rows, stream);
  }
}

cuda::FreshRows CudaCodedCache::fresh_of(int64_t layer, const RunPlan& plan) const {
  cuda::FreshRows fresh = fresh_rows_[static_cast<size_t>(layer)];
  const int64_t at = plan.fresh * view(layer).head_dim;
  fresh.keys += at;
  fresh.values += at;
  fresh.first = static_cast<int>(plan.before);
  return fresh;
}

void CudaCodedCache::keep_prefill(int64_t layer, const RunPlan& plan, const cuda::RopeCall& rope,
                                  const cuda::RowPlaces& rows, cuda::Stream stream) const {
  const cuda::CodedView cache = view(layer);
  const auto sequence = static_cast<int>(plan.run.sequence);
  const auto begin = static_cast<int>(plan.run.position), before = static_cast<int>(plan.before);
  const auto stored = static_cast<int>(plan.stored);
  const int end = begin + static_cast<int>(plan.run.rows);
  const cuda::FreshRows fresh = fresh_of(layer, plan);
  cuda::copy_from_ring(cache, sequence, before, begin, fresh, stream);
  cuda::keep_rows(rope_part(rope, plan.row, plan.run.rows), cache, rows.from(plan.row), &fresh,
                  stream);
  cuda::store_bundles(cache, {sequence, before / kCacheBundle, stored / kCacheBundle}, fresh,
                      stream);
  cuda::copy_to_ring(cache, sequence, stored, end, fresh, stream);
}

void CudaCodedCache::attend(int64_t layer, const cuda::AttentionRows& attention, int64_t skip,
                            const cuda::AttentionScratch& scratch, cuda::Stream stream) const {
  const cuda::CodedView cache = view(layer);
  for (const RowGroup& group : groups_) {
    const int64_t begin = std::max(group.first, skip);
    if (!group.single && begin < group.end())
      attend_prefill(layer, plans_[group.run], attention.part(begin, group.end()), stream);
    for (int64_t row = begin; group.single && row < group.end(); row += cuda::kDecodeRows) {
      const int64_t end = std::min(group.end(), row + cuda::kDecodeRows);
      cuda::attend_decode({attention.part(row, end), &cache}, group.longest, scratch, stream);
    }
  }
}

// `attention` describes the last rows of the run, those whose results are wanted.
void CudaCodedCache::attend_prefill(int64_t layer, const RunPlan& plan,
                                    const cuda::AttentionRows& attention,
                                    cuda::Stream stream) const {
  const cuda::CodedView cache = view(layer);
  const int64_t first = plan.run.position + plan.run.rows - attention.m;
  const int64_t seen = attention.options.first_seen(first);
  const cuda::BundleRange bundles{static_cast<int>(plan.run.sequence),
                                  static_cast<int>(std::min(seen, plan.stored) / kCacheBundle),
                                  static_cast<int>(plan.stored / kCacheBundle)};
  cuda::CodedView old = cache;
  // Queries with a window or a chunk read the first positions as they are stored, as in decoding
  // and on the CPU.
  if (!attention.options.sees_all()) old.keys.leading = old.values.leading = nullptr;
  cuda::load_bundles(old, bundles, old_rows_, stream);
  cuda::attend_prefill({attention, &cache}, fresh_of(layer, plan), old_rows_,
                       static_cast<int>(first), stream);
}

void CudaCodedCache::abandon() {
  for (const RunPlan& plan : plans_)
    sequences_[static_cast<size_t>(plan.run.sequence)] = {0, 0, false};
  plans_.clear();
}

void CudaCodedCache::finish() {
  for (const RunPlan& plan : plans_) {
    Sequence& sequence = sequences_[static_cast<size_t>(plan.run.sequence)];
    sequence.length = plan.run.position + plan.run.rows;
    sequence.stored = plan.stored;
  }
}

}  // namespace walsh
