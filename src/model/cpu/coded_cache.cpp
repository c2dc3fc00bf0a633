#include "model/cpu/coded_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "base/half.h"

namespace walsh {
namespace {

// Rows of a tail beyond those that a query needs: it is moved only when they are used up.
constexpr int64_t kTailSpare = 64;

std::unique_ptr<Rotator> make_rotator(const CacheType& type, int64_t head_dim) {
  if (type.rotation_block == 0) return nullptr;
  const Rotation rotation{RotationKind::hadamard, type.rotation_block, kCacheRotationSeed, true};
  return std::make_unique<Rotator>(rotation, padded_head_dim(type, head_dim));
}

int64_t unit_floor(int64_t position) {
  return position / kCacheUnit * kCacheUnit;
}

}  // namespace

CodedCache::CodedCache(const Model& model, int64_t positions, int64_t max_rows,
                       const SessionOptions& options)
    : model_(model),
      ops_(ops()),
      key_type_(*model.cache.keys),
      value_type_(*model.cache.values),
      head_dim_(widest(model.config).head_dim),
      kv_heads_(widest(model.config).kv_heads),
      group_(widest(model.config).heads / kv_heads_),
      window_(std::clamp<int64_t>(model.cache.window, 0, positions)),
      tail_rows_(exact_rows() + kTailSpare),
      // A run finds no room in a tail only if it is longer than what tails have to spare.
      fresh_rows_(std::min(options.sequences, max_rows / (kTailSpare + 1)) * exact_rows() +
                  max_rows),
      layers_(static_cast<int64_t>(model.config.layers.size())),
      key_rotator_(make_rotator(key_type_, head_dim_)),
      value_rotator_(make_rotator(value_type_, head_dim_)) {
  bytes_ = planned_bytes(positions, options);
  if (bytes_ > options.max_bytes) {
    throw Error(ErrorCode::limit, "KV cache",
                fmt::format("{} positions of {} sequences need {} MiB with keys as {} and values "
                            "as {}, the limit is {} MiB",
                            positions, options.sequences, bytes_ >> 20, key_type_.name,
                            value_type_.name, options.max_bytes >> 20));
  }
  allocate(positions, options);
  for (int t = 0; t < model.pool().size(); ++t)
    scratch_.push_back(make_scratch());
}

// Everything but scratch memory of a size that depends on the model alone.
uint64_t CodedCache::planned_bytes(int64_t positions, const SessionOptions& options) const {
  const char* where = "KV cache";
  const auto times = [&](uint64_t a, int64_t b) {
    return checked_mul(a, static_cast<uint64_t>(b), where);
  };
  const uint64_t block = CacheKeys(key_type_, head_dim_, kCacheBlock).bytes() +
                         CacheValues(value_type_, head_dim_, kCacheBlock).bytes();
  const uint64_t row = static_cast<uint64_t>(head_dim_) * 2 * sizeof(uint16_t);
  const uint64_t head = times(block, round_up(positions, kCacheBlock) / kCacheBlock) +
                        times(row, tail_rows_ + kSinks) + times(sizeof(float), head_dim_);
  return times(times(times(head, kv_heads_), layers_), options.sequences) +
         times(times(row, fresh_rows_), kv_heads_) +
         times(times(row, kSinks + exact_rows()), model_.pool().size());
}

void CodedCache::allocate(int64_t positions, const SessionOptions& options) {
  const int64_t heads = layers_ * kv_heads_;
  sequences_.resize(static_cast<size_t>(options.sequences));
  for (Sequence& sequence : sequences_) {
    for (int64_t h = 0; h < heads; ++h) {
      sequence.heads.push_back({CacheKeys(key_type_, head_dim_, positions),
                                CacheValues(value_type_, head_dim_, positions),
                                std::vector<float>(static_cast<size_t>(head_dim_))});
    }
  }
  const auto rows = [&](int64_t count) { return static_cast<size_t>(count * head_dim_); };
  for (AlignedArray<uint16_t>* tails : {&tail_keys_, &tail_values_})
    *tails = AlignedArray<uint16_t>(rows(options.sequences * heads * tail_rows_));
  for (AlignedArray<uint16_t>* sinks : {&sink_keys_, &sink_values_})
    *sinks = AlignedArray<uint16_t>(rows(options.sequences * heads * kSinks));
  for (AlignedArray<uint16_t>* fresh : {&fresh_keys_, &fresh_values_})
    *fresh = AlignedArray<uint16_t>(rows(kv_heads_ * fresh_rows_));
  steps_.reserve(sequences_.size());
}

CodedCache::Scratch CodedCache::make_scratch() const {
  Scratch scratch;
  const auto rows = static_cast<size_t>(std::max(kAttentionRows, group_));
  const auto columns = static_cast<size_t>(
      std::max(padded_head_dim(key_type_, head_dim_), padded_head_dim(value_type_, head_dim_)));
  scratch.stored = CacheScratch(key_type_, value_type_, head_dim_, static_cast<int64_t>(rows),
                                model_.activations == ActivationMode::f32);
  scratch.unit = AlignedArray<float>(kCacheUnit * columns);
  for (AlignedArray<uint16_t>* halves : {&scratch.keys, &scratch.values})
    *halves = AlignedArray<uint16_t>(static_cast<size_t>((kSinks + exact_rows()) * head_dim_));
  scratch.out.resize(rows * static_cast<size_t>(head_dim_));
  for (std::vector<float>* sums : {&scratch.exact_sums, &scratch.stored_sums})
    sums->resize(rows);
  for (std::vector<int64_t>* ends : {&scratch.begin, &scratch.end})
    ends->resize(rows);
  return scratch;
}

int64_t CodedCache::stored_end(int64_t position, int64_t stored) const {
  return std::max(stored, unit_floor(std::max<int64_t>(0, position - window_)));
}

CodedCache::Sequence& CodedCache::sequence_of(const Step& step) {
  return sequences_[static_cast<size_t>(step.run.sequence)];
}

CodedCache::Head& CodedCache::head_of(const Step& step, int64_t layer, int64_t head) {
  return sequence_of(step).heads[static_cast<size_t>(layer * kv_heads_ + head)];
}

CodedCache::HalfRows CodedCache::tail_of(int64_t sequence, int64_t layer, int64_t head) {
  const int64_t at = ((sequence * layers_ + layer) * kv_heads_ + head) * tail_rows_;
  return {tail_keys_.data() + at * head_dim_, tail_values_.data() + at * head_dim_};
}

CodedCache::HalfRows CodedCache::sinks_of(int64_t sequence, int64_t layer, int64_t head) {
  const int64_t at = ((sequence * layers_ + layer) * kv_heads_ + head) * kSinks;
  return {sink_keys_.data() + at * head_dim_, sink_values_.data() + at * head_dim_};
}

CodedCache::HalfRows CodedCache::rows_of(const Step& step, int64_t layer, int64_t head) {
  if (step.fresh < 0) return tail_of(step.run.sequence, layer, head);
  const int64_t at = (head * fresh_rows_ + step.fresh) * head_dim_;
  return {fresh_keys_.data() + at, fresh_values_.data() + at};
}

int64_t CodedCache::first_of(const Step& step) {
  const Sequence& sequence = sequence_of(step);
  return step.fresh < 0 ? sequence.tail + step.move : sequence.stored;
}

void CodedCache::start(std::span<const Run> runs) {
  steps_.clear();
  int64_t row = 0, fresh = 0;
  for (const Run& run : runs) {
    Sequence& sequence = sequences_[static_cast<size_t>(run.sequence)];
    if (run.position != sequence.length) take_back(run.sequence, run.position);
    Step step{run, row};
    step.stored = stored_end(run.position + run.rows - 1, sequence.stored);
    if (run.position + run.rows - sequence.tail > tail_rows_) {
      step.move = sequence.stored - sequence.tail;
      if (run.position + run.rows - sequence.stored > tail_rows_) {
        step.fresh = fresh;
        fresh += run.position - sequence.stored + run.rows;
      }
    }
    steps_.push_back(step);
    row += run.rows;
  }
}

void CodedCache::finish() {
  for (const Step& step : steps_) {
    Sequence& sequence = sequence_of(step);
    sequence.tail = step.fresh < 0 ? sequence.tail + step.move : step.stored;
    sequence.stored = step.stored;
    sequence.length = step.end();
  }
  steps_.clear();
}

void CodedCache::abandon() {
  for (const Step& step : steps_)
    sequence_of(step).stored = sequence_of(step).tail = sequence_of(step).length = 0;
  steps_.clear();
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
  // The rows of the last unit are fp16 again, with the error of having been stored.
  sequence.stored = sequence.tail = unit_floor(position);
  if (position == sequence.stored) return;
  for (int64_t layer = 0; layer < layers_; ++layer)
    for (int64_t head = 0; head < kv_heads_; ++head)
      restore_tail(index, layer, head, position - sequence.stored);
}

void CodedCache::restore_tail(int64_t index, int64_t layer, int64_t head, int64_t rows) {
  const Sequence& sequence = sequences_[static_cast<size_t>(index)];
  const Head& from = sequence.heads[static_cast<size_t>(layer * kv_heads_ + head)];
  const HalfRows to = tail_of(index, layer, head);
  float* x = scratch_[0].unit.data();
  const auto restore = [&](const auto& side, const Rotator* rotator, const float* offset,
                           uint16_t* out) {
    side.load(ops_, sequence.stored / kCacheUnit, x);
    for (int64_t j = 0; j < rows; ++j) {
      float* row = x + j * side.cols();
      if (rotator != nullptr) rotator->invert(row);
      for (int64_t d = 0; d < head_dim_ && offset != nullptr; ++d)
        row[d] += offset[d];
      ops_.to_f16(row, head_dim_, out + j * head_dim_);
    }
  };
  restore(from.keys, key_rotator_.get(), from.key_offset.data(), to.keys);
  restore(from.values, value_rotator_.get(), nullptr, to.values);
  if (sequence.stored > 0) return;
  const HalfRows sinks = sinks_of(index, layer, head);
  const int64_t count = std::min(kSinks, rows) * head_dim_;
  std::copy_n(sinks.keys, count, to.keys);
  std::copy_n(sinks.values, count, to.values);
}

void CodedCache::store(int64_t layer, const float* keys, const float* values, int64_t stride) {
  const auto store_one = [&](int64_t task, int thread) {
    const Step& step = steps_[static_cast<size_t>(task / kv_heads_)];
    store_head(step, layer, task % kv_heads_, keys + step.row * stride, values + step.row * stride,
               stride, scratch_[static_cast<size_t>(thread)]);
  };
  const auto tasks = static_cast<int64_t>(steps_.size()) * kv_heads_;
  const Step& only = steps_.front();
  if (steps_.size() == 1 && only.run.rows == 1 && only.stored == sequence_of(only).stored) {
    for (int64_t task = 0; task < tasks; ++task)  // a few rows to convert
      store_one(task, 0);
    return;
  }
  model_.pool().for_each(tasks, store_one);
}

void CodedCache::store_head(const Step& step, int64_t layer, int64_t head, const float* keys,
                            const float* values, int64_t stride, Scratch& scratch) {
  const Sequence& sequence = sequence_of(step);
  const HalfRows tail = tail_of(step.run.sequence, layer, head), rows = rows_of(step, layer, head);
  const int64_t first = first_of(step);
  const int64_t before = (step.run.position - first) * head_dim_;
  if (step.move > 0 || step.fresh >= 0) {
    const int64_t skipped = (first - sequence.tail) * head_dim_;
    std::copy_n(tail.keys + skipped, before, rows.keys);
    std::copy_n(tail.values + skipped, before, rows.values);
  }
  for (int64_t i = 0; i < step.run.rows; ++i) {
    const int64_t from = i * stride + head * head_dim_, to = before + i * head_dim_;
    ops_.to_f16(keys + from, head_dim_, rows.keys + to);
    ops_.to_f16(values + from, head_dim_, rows.values + to);
  }
  for (int64_t unit = sequence.stored / kCacheUnit; unit < step.stored / kCacheUnit; ++unit)
    encode(step, layer, head, unit, rows, scratch);
  if (step.fresh < 0) return;
  const int64_t kept = (step.end() - step.stored) * head_dim_;
  const int64_t at = (step.stored - first) * head_dim_;
  std::copy_n(rows.keys + at, kept, tail.keys);
  std::copy_n(rows.values + at, kept, tail.values);
}

void CodedCache::encode(const Step& step, int64_t layer, int64_t head, int64_t unit,
                        const HalfRows& rows, Scratch& scratch) {
  Head& to = head_of(step, layer, head);
  const int64_t at = (unit * kCacheUnit - first_of(step)) * head_dim_;
  if (unit == 0) {
    const HalfRows sinks = sinks_of(step.run.sequence, layer, head);
    std::copy_n(rows.keys + at, kSinks * head_dim_, sinks.keys);
    std::copy_n(rows.values + at, kSinks * head_dim_, sinks.values);
    if (key_type_.coded) to.key_offset = mean_key(rows.keys + at);
  }
  float* x = scratch.unit.data();
  const auto encode_side = [&](auto& side, const uint16_t* halves, const Rotator* rotator,
                               const float* offset) {
    for (int64_t j = 0; j < kCacheUnit; ++j) {
      float* row = x + j * side.cols();
      ops_.from_f16(halves + j * head_dim_, head_dim_, row);
      for (int64_t d = 0; d < head_dim_ && offset != nullptr; ++d)
        row[d] -= offset[d];
      std::fill(row + head_dim_, row + side.cols(), 0.0f);
      if (rotator != nullptr) rotator->apply(row);
    }
    side.store(ops_, unit, x);
  };
  encode_side(to.keys, rows.keys + at, key_rotator_.get(), to.key_offset.data());
  encode_side(to.values, rows.values + at, value_rotator_.get(), nullptr);
}

// Of the keys of the first unit behind the sinks, whose keys are unlike the others.
std::vector<float> CodedCache::mean_key(const uint16_t* keys) const {
  std::vector<float> mean(static_cast<size_t>(head_dim_));
  for (int64_t j = kSinks; j < kCacheUnit; ++j)
    for (int64_t d = 0; d < head_dim_; ++d)
      mean[static_cast<size_t>(d)] += f16_to_f32(keys[j * head_dim_ + d]);
  for (float& v : mean)
    v = std::isfinite(v) ? v / static_cast<float>(kCacheUnit - kSinks) : 0;
  return mean;
}

}  // namespace walsh
