#include "model/cpu/coded_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "base/half.h"
#include "cache/half_rows.h"

namespace walsh {
namespace {

// A tail has this many spare rows beyond those that queries need. It is moved only when they are
// used up.
constexpr int64_t kTailSpare = 64;

std::unique_ptr<Rotator> make_rotator(const CacheType& type, int64_t head_dim) {
  if (type.rotation_block == 0) return nullptr;
  const Rotation rotation{RotationKind::hadamard, type.rotation_block, kCacheRotationSeed, true};
  return std::make_unique<Rotator>(rotation, padded_head_dim(type, head_dim));
}

// Writes to `mean` the mean of the keys of the first bundle without the leading positions, whose
// keys are unlike the others.
void mean_key(const uint16_t* keys, int64_t head_dim, float* mean) {
  std::fill_n(mean, head_dim, 0.0f);
  for (int64_t j = CodedCache::kLeading; j < kCacheBundle; ++j)
    for (int64_t d = 0; d < head_dim; ++d)
      mean[d] += f16_to_f32(keys[j * head_dim + d]);
  for (int64_t d = 0; d < head_dim; ++d)
    mean[d] = std::isfinite(mean[d])
                  ? mean[d] / static_cast<float>(kCacheBundle - CodedCache::kLeading)
                  : 0;
}

int64_t bundle_floor(int64_t position) {
  return position / kCacheBundle * kCacheBundle;
}

}  // namespace

CodedCache::CodedCache(const Model& model, const KvPages& pages, int64_t max_rows,
                       uint64_t max_bytes)
    : model_(model),
      ops_(ops()),
      pages_(pages),
      key_type_(*model.cache.keys),
      value_type_(*model.cache.values),
      window_(std::clamp<int64_t>(model.cache.window, 0, pages.shape().capacity)),
      tail_rows_(exact_rows() + kTailSpare),
      // A run finds no room in a tail only if it is longer than the spare rows.
      fresh_rows_(std::min(pages.shape().sequences, max_rows / (kTailSpare + 1)) * exact_rows() +
                  max_rows) {
  static_assert(kCpuPagePositions == kCacheBlock);
  describe_layers();
  bytes_ = planned_bytes();
  check_cache_bytes(model, pages.shape(), bytes_, max_bytes);
  allocate();
}

void CodedCache::describe_layers() {
  for (const LayerDesc& desc : model_.config.layers) {
    const AttentionDesc& a = desc.attention;
    if (!a.has_cache()) {
      layers_.emplace_back();
      continue;
    }
    const int64_t dim = a.cache_dim(), rank = a.latent.rank;
    HeadSize& size = sizes_[dim];
    if (size.group == 0) {
      size.rank = rank;
      size.key_rotator = make_rotator(key_type_, rank > 0 ? rank : dim);
      if (rank == 0) size.value_rotator = make_rotator(value_type_, dim);
    }
    size.group = std::max(size.group, a.heads / a.cache_heads());
    layers_.push_back({dim,
                       a.cache_heads(),
                       rank,
                       width_,
                       0,
                       size.key_rotator.get(),
                       size.value_rotator.get(),
                       {},
                       std::nullopt});
    has_values_ |= rank == 0;
    width_ += a.cached_keys();
    widest_ = std::max(widest_, a.cached_keys());
  }
  // Rows of layers that later layers read are kept until those have run.
  fresh_width_ = widest_;
  for (const LayerDesc& desc : model_.config.layers) {
    const int from = desc.attention.cache_of;
    if (from < 0 || layers_[static_cast<size_t>(from)].fresh > 0) continue;
    LayerCache& layer = layers_[static_cast<size_t>(from)];
    layer.fresh = fresh_width_;
    fresh_width_ += layer.kv_heads * layer.head_dim;
  }
}

// Returns how many bytes everything takes except scratch memory, whose size depends on the model
// alone.
uint64_t CodedCache::planned_bytes() const {
  const char* where = "KV cache";
  const auto times = [&](uint64_t a, int64_t b) {
    return checked_mul(a, static_cast<uint64_t>(b), where);
  };
  uint64_t page = 0;  // It is the sum over all layers.
  for (const LayerCache& layer : layers_) {
    if (layer.kv_heads == 0) continue;  // It has no heads to lay out.
    if (layer.rank > 0) {
      page += CacheLatents(key_type_, layer.rank, layer.head_dim - layer.rank, kCacheBlock).bytes();
      continue;
    }
    page += times(CacheKeys(key_type_, layer.head_dim, kCacheBlock).bytes() +
                      CacheValues(value_type_, layer.head_dim, kCacheBlock).bytes(),
                  layer.kv_heads);
  }
  const int64_t pair = (has_values_ ? 2 : 1) * static_cast<int64_t>(sizeof(uint16_t));
  const uint64_t row = times(static_cast<uint64_t>(width_), pair);
  const uint64_t sequence = times(row, tail_rows_ + kLeading) + times(sizeof(float), width_);
  uint64_t scratch = 0;
  for (const auto& [head_dim, size] : sizes_)
    scratch += times(times(static_cast<uint64_t>(head_dim), pair), kLeading + exact_rows());
  return checked_add(checked_add(times(page, pages_.shape().pages),
                                 times(sequence, pages_.shape().sequences), where),
                     times(times(static_cast<uint64_t>(fresh_width_), pair), fresh_rows_) +
                         times(scratch, model_.pool().size()),
                     where);
}

void CodedCache::allocate() {
  const int64_t positions = pages_.shape().pages * kCacheBlock;
  for (LayerCache& layer : layers_) {
    if (layer.rank > 0)
      layer.latents.emplace(key_type_, layer.rank, layer.head_dim - layer.rank, positions);
    for (int64_t h = 0; h < layer.kv_heads && layer.rank == 0; ++h) {
      layer.heads.push_back({CacheKeys(key_type_, layer.head_dim, positions),
                             CacheValues(value_type_, layer.head_dim, positions)});
    }
  }
  const int64_t sequences = pages_.shape().sequences;
  sequences_.resize(static_cast<size_t>(sequences));
  for (Sequence& sequence : sequences_)
    sequence.key_offsets.resize(static_cast<size_t>(width_));
  const auto allocate_pair = [&](AlignedArray<uint16_t>& keys, AlignedArray<uint16_t>& values,
                                 int64_t count) {
    keys = AlignedArray<uint16_t>(static_cast<size_t>(count));
    if (has_values_) values = AlignedArray<uint16_t>(static_cast<size_t>(count));
  };
  allocate_pair(tail_keys_, tail_values_, sequences * tail_rows_ * width_);
  allocate_pair(leading_keys_, leading_values_, sequences * kLeading * width_);
  allocate_pair(fresh_keys_, fresh_values_, fresh_width_ * fresh_rows_);
  for (auto& [head_dim, size] : sizes_)
    for (int t = 0; t < model_.pool().size(); ++t)
      size.scratch.push_back(make_scratch(head_dim, size));
  plans_.reserve(sequences_.size());
}

CodedCache::Scratch CodedCache::make_scratch(int64_t head_dim, const HeadSize& size) const {
  Scratch scratch;
  const auto rows = static_cast<size_t>(std::max(kAttentionRows, size.group));
  const auto columns = static_cast<size_t>(
      std::max(padded_head_dim(key_type_, head_dim), padded_head_dim(value_type_, head_dim)));
  scratch.bundle = AlignedArray<float>(kCacheBundle * columns);
  const auto halves = static_cast<size_t>((kLeading + exact_rows()) * head_dim);
  scratch.keys = AlignedArray<uint16_t>(halves);
  if (size.rank == 0) scratch.values = AlignedArray<uint16_t>(halves);
  scratch.out.resize(rows * columns);
  for (std::vector<float>* sums : {&scratch.exact_sums, &scratch.stored_sums})
    sums->resize(rows);
  for (std::vector<int64_t>* ends : {&scratch.begin, &scratch.end})
    ends->resize(rows);
  if (size.rank > 0) {
    make_latent_scratch(head_dim, size, scratch);
  } else {
    scratch.stored = CacheScratch(key_type_, value_type_, head_dim, static_cast<int64_t>(rows),
                                  model_.activations == ActivationMode::f32);
  }
  return scratch;
}

void CodedCache::make_latent_scratch(int64_t head_dim, const HeadSize& size,
                                     Scratch& scratch) const {
  const int64_t rows = std::max(kAttentionRows, size.group);
  const int64_t cols = padded_head_dim(key_type_, size.rank), width = cols + head_dim - size.rank;
  const auto floats = [&](int64_t of_row) {
    return AlignedArray<float>(static_cast<size_t>(rows * of_row));
  };
  scratch.queries = floats(width);
  scratch.block_out = floats(cols);
  scratch.block = AlignedArray<uint16_t>(static_cast<size_t>(kCacheBlock * width));
  scratch.block_sums.resize(static_cast<size_t>(rows));
  scratch.attention = AlignedArray<float>(
      static_cast<size_t>(attention_scratch(1, kCacheBlock, static_cast<int>(width))));
}

int64_t CodedCache::stored_end(int64_t position, int64_t stored) const {
  return std::max(stored, bundle_floor(std::max<int64_t>(0, position - window_)));
}

CodedCache::Sequence& CodedCache::sequence_of(const RunPlan& plan) {
  return sequences_[static_cast<size_t>(plan.run.sequence)];
}

CodedCache::Scratch& CodedCache::scratch_of(const LayerCache& layer, int thread) {
  return sizes_.at(layer.head_dim).scratch[static_cast<size_t>(thread)];
}

int64_t CodedCache::stored_bundle(int64_t sequence, int64_t bundle) const {
  constexpr int64_t kBundles = kCacheBlock / kCacheBundle;
  const int64_t page = pages_.pages(sequence)[static_cast<size_t>(bundle / kBundles)];
  return page * kBundles + bundle % kBundles;
}

float* CodedCache::key_offset(int64_t sequence, const LayerCache& layer, int64_t head) {
  return sequences_[static_cast<size_t>(sequence)].key_offsets.data() + at(layer, head, 1);
}

CodedCache::HalfRows CodedCache::tail_of(int64_t sequence, const LayerCache& layer, int64_t head) {
  const int64_t first = sequence * width_ * tail_rows_ + at(layer, head, tail_rows_);
  uint16_t* keys = tail_keys_.data() + first;
  return {keys, layer.rank > 0 ? keys : tail_values_.data() + first};
}

CodedCache::HalfRows CodedCache::leading_rows(int64_t sequence, const LayerCache& layer,
                                              int64_t head) {
  const int64_t first = sequence * width_ * kLeading + at(layer, head, kLeading);
  uint16_t* keys = leading_keys_.data() + first;
  return {keys, layer.rank > 0 ? keys : leading_values_.data() + first};
}

CodedCache::HalfRows CodedCache::rows_of(const RunPlan& plan, const LayerCache& layer,
                                         int64_t head) {
  if (plan.fresh < 0) return tail_of(plan.run.sequence, layer, head);
  const int64_t first =
      layer.fresh * fresh_rows_ + (head * fresh_rows_ + plan.fresh) * layer.head_dim;
  uint16_t* keys = fresh_keys_.data() + first;
  return {keys, layer.rank > 0 ? keys : fresh_values_.data() + first};
}

int64_t CodedCache::first_of(const RunPlan& plan) {
  const Sequence& sequence = sequence_of(plan);
  return plan.fresh < 0 ? sequence.tail + plan.move : sequence.stored;
}

void CodedCache::start(std::span<const Run> runs) {
  plans_.clear();
  int64_t row = 0, fresh = 0;
  for (const Run& run : runs) {
    Sequence& sequence = sequences_[static_cast<size_t>(run.sequence)];
    if (run.position != sequence.length) take_back(run.sequence, run.position);
    RunPlan plan{run, row};
    plan.stored = stored_end(run.position + run.rows - 1, sequence.stored);
    if (run.position + run.rows - sequence.tail > tail_rows_) {
      plan.move = sequence.stored - sequence.tail;
      if (run.position + run.rows - sequence.stored > tail_rows_) {
        plan.fresh = fresh;
        fresh += run.position - sequence.stored + run.rows;
      }
    }
    plans_.push_back(plan);
    row += run.rows;
  }
}

void CodedCache::finish() {
  for (const RunPlan& plan : plans_) {
    Sequence& sequence = sequence_of(plan);
    sequence.tail = plan.fresh < 0 ? sequence.tail + plan.move : plan.stored;
    sequence.stored = plan.stored;
    sequence.length = plan.end();
  }
  plans_.clear();
}

void CodedCache::abandon() {
  for (const RunPlan& plan : plans_)
    sequence_of(plan).stored = sequence_of(plan).tail = sequence_of(plan).length = 0;
  plans_.clear();
}

void CodedCache::copy_page(const PageCopy& copy) {
  for (LayerCache& layer : layers_) {
    if (layer.latents) layer.latents->copy_block(copy.from, copy.to);
    for (Head& head : layer.heads) {
      head.keys.copy_block(copy.from, copy.to);
      head.values.copy_block(copy.from, copy.to);
    }
  }
}

void CodedCache::fork(int64_t from, int64_t to) {
  sequences_[static_cast<size_t>(to)] = sequences_[static_cast<size_t>(from)];
  const auto copy = [&](AlignedArray<uint16_t>& rows, int64_t count) {
    if (rows.empty()) return;
    const int64_t size = width_ * count;
    std::copy_n(rows.data() + from * size, size, rows.data() + to * size);
  };
  for (AlignedArray<uint16_t>* tails : {&tail_keys_, &tail_values_})
    copy(*tails, tail_rows_);
  for (AlignedArray<uint16_t>* leading : {&leading_keys_, &leading_values_})
    copy(*leading, kLeading);
}

void CodedCache::take_back(int64_t index, int64_t position) {
  Sequence& sequence = sequences_[static_cast<size_t>(index)];
  if (position > sequence.length) {
    throw Error(
        ErrorCode::internal, "KV cache",
        fmt::format("position {} of a sequence of {}: it has to be reset after a batch that "
                    "failed",
                    position, sequence.length));
  }
  sequence.length = position;
  if (position >= sequence.stored) return;
  // The rows of the last bundle become fp16 again. They keep the error that storing them caused.
  sequence.stored = sequence.tail = bundle_floor(position);
  if (position == sequence.stored) return;
  for (const LayerCache& layer : layers_)
    for (int64_t head = 0; head < layer.kv_heads; ++head)
      restore_tail(index, layer, head, position - sequence.stored);
}

void CodedCache::restore_tail(int64_t index, const LayerCache& layer, int64_t head, int64_t rows) {
  const Sequence& sequence = sequences_[static_cast<size_t>(index)];
  const HalfRows to = tail_of(index, layer, head);
  const int64_t head_dim = layer.head_dim;
  const auto restore_sinks = [&] {
    if (sequence.stored == 0)
      copy_rows(leading_rows(index, layer, head), to, std::min(kLeading, rows) * head_dim);
  };
  if (layer.latents) {
    restore_latents(index, layer, rows, to.keys);
    return restore_sinks();
  }
  const Head& from = layer.heads[static_cast<size_t>(head)];
  float* x = scratch_of(layer, 0).bundle.data();
  const auto restore = [&](const auto& side, const Rotator* rotator, const float* offset,
                           uint16_t* out) {
    side.load(ops_, stored_bundle(index, sequence.stored / kCacheBundle), x);
    for (int64_t j = 0; j < rows; ++j) {
      float* row = x + j * side.cols();
      if (rotator != nullptr) rotator->invert(row);
      for (int64_t d = 0; d < head_dim && offset != nullptr; ++d)
        row[d] += offset[d];
      store_half_row(ops_, row, head_dim, out + j * head_dim);
    }
  };
  restore(from.keys, layer.key_rotator, key_offset(index, layer, head), to.keys);
  restore(from.values, layer.value_rotator, nullptr, to.values);
  restore_sinks();
}

void CodedCache::restore_latents(int64_t index, const LayerCache& layer, int64_t rows,
                                 uint16_t* out) {
  const CacheLatents& latents = *layer.latents;
  Scratch& scratch = scratch_of(layer, 0);
  const int64_t bundle =
      stored_bundle(index, sequences_[static_cast<size_t>(index)].stored / kCacheBundle);
  latents.load(ops_, bundle * kCacheBundle, rows, scratch.block.data());
  float* x = scratch.bundle.data();
  for (int64_t j = 0; j < rows; ++j) {
    const uint16_t* from = scratch.block.data() + j * latents.width();
    uint16_t* to = out + j * layer.head_dim;
    ops_.from_f16(from, latents.cols(), x);
    if (layer.key_rotator != nullptr) layer.key_rotator->invert(x);
    store_half_row(ops_, x, layer.rank, to);
    std::copy_n(from + latents.cols(), layer.head_dim - layer.rank, to + layer.rank);
  }
}

// Copies rows. Keys and values are one array where values are parts of keys.
void CodedCache::copy_rows(const HalfRows& from, const HalfRows& to, int64_t count) {
  std::copy_n(from.keys, count, to.keys);
  if (from.values != from.keys) std::copy_n(from.values, count, to.values);
}

void CodedCache::store(int64_t index, const float* keys, const float* values, int64_t stride) {
  LayerCache& layer = layers_[static_cast<size_t>(index)];
  const auto store_one = [&](int64_t task, int thread) {
    const RunPlan& plan = plans_[static_cast<size_t>(task / layer.kv_heads)];
    const int64_t first = plan.row * stride;
    store_head(plan, layer, task % layer.kv_heads, keys + first,
               values == nullptr ? nullptr : values + first, stride, scratch_of(layer, thread));
  };
  const auto tasks = static_cast<int64_t>(plans_.size()) * layer.kv_heads;
  const RunPlan& only = plans_.front();
  if (plans_.size() == 1 && only.run.rows == 1 && only.stored == sequence_of(only).stored) {
    for (int64_t task = 0; task < tasks; ++task)  // There are only a few rows to convert.
      store_one(task, 0);
    return;
  }
  model_.pool().for_each(tasks, store_one);
}

void CodedCache::store_head(const RunPlan& plan, LayerCache& layer, int64_t head, const float* keys,
                            const float* values, int64_t stride, Scratch& scratch) {
  const Sequence& sequence = sequence_of(plan);
  const HalfRows tail = tail_of(plan.run.sequence, layer, head), rows = rows_of(plan, layer, head);
  const int64_t first = first_of(plan), head_dim = layer.head_dim;
  const int64_t before = (plan.run.position - first) * head_dim;
  if (plan.move > 0 || plan.fresh >= 0) {
    const int64_t skipped = (first - sequence.tail) * head_dim;
    copy_rows({tail.keys + skipped, tail.values + skipped}, rows, before);
  }
  for (int64_t i = 0; i < plan.run.rows; ++i) {
    const int64_t from = i * stride + head * head_dim, to = before + i * head_dim;
    store_half_row(ops_, keys + from, head_dim, rows.keys + to);
    if (values != nullptr) store_half_row(ops_, values + from, head_dim, rows.values + to);
  }
  for (int64_t bundle = sequence.stored / kCacheBundle; bundle < plan.stored / kCacheBundle;
       ++bundle)
    encode(plan, layer, head, bundle, rows, scratch);
  if (plan.fresh < 0) return;
  const int64_t kept = (plan.end() - plan.stored) * head_dim;
  const int64_t at = (plan.stored - first) * head_dim;
  copy_rows({rows.keys + at, rows.values + at}, tail, kept);
}

void CodedCache::encode(const RunPlan& plan, LayerCache& layer, int64_t head, int64_t bundle,
                        const HalfRows& rows, Scratch& scratch) {
  const int64_t head_dim = layer.head_dim;
  const int64_t first = (bundle * kCacheBundle - first_of(plan)) * head_dim;
  float* offset = key_offset(plan.run.sequence, layer, head);
  if (bundle == 0) {
    copy_rows({rows.keys + first, rows.values + first},
              leading_rows(plan.run.sequence, layer, head), kLeading * head_dim);
    if (key_type_.coded && layer.rank == 0) mean_key(rows.keys + first, head_dim, offset);
  }
  const int64_t stored = stored_bundle(plan.run.sequence, bundle);
  float* x = scratch.bundle.data();
  if (layer.latents) return encode_latents(layer, stored, rows.keys + first, x);
  Head& to = layer.heads[static_cast<size_t>(head)];
  const auto encode_side = [&](auto& side, const uint16_t* halves, const Rotator* rotator,
                               const float* subtracted) {
    for (int64_t j = 0; j < kCacheBundle; ++j) {
      float* row = x + j * side.cols();
      ops_.from_f16(halves + j * head_dim, head_dim, row);
      for (int64_t d = 0; d < head_dim && subtracted != nullptr; ++d)
        row[d] -= subtracted[d];
      std::fill(row + head_dim, row + side.cols(), 0.0f);
      if (rotator != nullptr) rotator->apply(row);
    }
    side.store(ops_, stored, x);
  };
  encode_side(to.keys, rows.keys + first, layer.key_rotator, offset);
  encode_side(to.values, rows.values + first, layer.value_rotator, nullptr);
}

// Encodes latents. Unlike keys, they keep their mean, because they are values, too.
void CodedCache::encode_latents(LayerCache& layer, int64_t stored, const uint16_t* rows, float* x) {
  CacheLatents& latents = *layer.latents;
  for (int64_t j = 0; j < kCacheBundle; ++j) {
    float* row = x + j * latents.cols();
    ops_.from_f16(rows + j * layer.head_dim, layer.rank, row);
    std::fill(row + layer.rank, row + latents.cols(), 0.0f);
    if (layer.key_rotator != nullptr) layer.key_rotator->apply(row);
  }
  latents.store(stored, x, rows + layer.rank, layer.head_dim);
}

}  // namespace walsh
