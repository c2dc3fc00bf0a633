// A cache whose older positions are coded (cache/cache_type.h). A query sees as fp16 the first
// kSinks positions, at least the latest `window` ones before itself and itself, and everything
// between as it is stored, in whole units of positions: what it sees depends on its position alone,
// so that logits do not depend on how a text was cut into batches. (What was stored stays so when a
// sequence is taken back to an earlier position.)
#pragma once

#include <memory>
#include <vector>

#include "base/aligned.h"
#include "cache/attention.h"
#include "cache/side.h"
#include "model/cpu/kv_cache.h"

namespace walsh {

class CodedCache : public KvCache {
 public:
  static constexpr int64_t kSinks = kCacheSinks;

  CodedCache(const Model& model, int64_t positions, int64_t max_rows,
             const SessionOptions& options);

  uint64_t bytes() const override { return bytes_; }
  void start(std::span<const Run> runs) override;
  void finish() override;
  void abandon() override;
  void store(int64_t layer, const float* keys, const float* values, int64_t stride) override;
  void attend(int64_t layer, const QueryRows& queries, int thread, float* scratch) override;

 private:
  // fp16 keys and values of one head, [rows][head_dim] each.
  struct HalfRows {
    uint16_t* keys;
    uint16_t* values;
  };
  // One kv head of one layer of a sequence.
  struct Head {
    CacheKeys keys;
    CacheValues values;
    std::vector<float> key_offset;  // the mean of the keys behind the sinks in the first unit
  };
  // Positions before `stored` are stored, those from `tail` on are fp16 rows of the tail, up to
  // `length`.
  struct Sequence {
    std::vector<Head> heads;  // [layers][kv_heads]
    int64_t stored = 0, tail = 0, length = 0;
  };
  // What a run does to its sequence, the same in all layers.
  struct Step {
    Run run;
    int64_t row = 0;     // of its first token in the batch
    int64_t stored = 0;  // positions that are stored afterwards
    int64_t move = 0;    // rows that the tail loses at its front beforehand
    int64_t fresh = -1;  // first row in fresh_keys_, if the tail has no room for the run

    int64_t end() const { return run.position + run.rows; }
  };
  // Queries [first, first + count) of a call, with one stored_end.
  struct Alike {
    int64_t first, count, end;
  };
  // Of a thread.
  struct Scratch {
    CacheScratch stored;
    AlignedArray<float> unit;             // [kCacheUnit][columns]
    AlignedArray<uint16_t> keys, values;  // [kSinks + exact rows][head_dim]
    std::vector<float> out;               // [rows][head_dim]
    std::vector<float> exact_sums, stored_sums;
    std::vector<int64_t> begin, end;
  };

  // Most fp16 rows behind the sinks that a query sees, itself included.
  int64_t exact_rows() const { return window_ + kCacheUnit; }
  // Positions that a query sees as they are stored, if the first `stored` are nowhere else.
  int64_t stored_end(int64_t position, int64_t stored) const;
  Sequence& sequence_of(const Step& step);
  Head& head_of(const Step& step, int64_t layer, int64_t head);
  HalfRows tail_of(int64_t sequence, int64_t layer, int64_t head);
  HalfRows sinks_of(int64_t sequence, int64_t layer, int64_t head);
  // The fp16 rows of a step, and the position of the first.
  HalfRows rows_of(const Step& step, int64_t layer, int64_t head);
  int64_t first_of(const Step& step);

  uint64_t planned_bytes(int64_t positions, const SessionOptions& options) const;
  void allocate(int64_t positions, const SessionOptions& options);
  Scratch make_scratch() const;
  // Sequence `index` ends at `position` again.
  void take_back(int64_t index, int64_t position);
  void restore_tail(int64_t index, int64_t layer, int64_t head, int64_t rows);
  void store_head(const Step& step, int64_t layer, int64_t head, const float* keys,
                  const float* values, int64_t stride, Scratch& scratch);
  void encode(const Step& step, int64_t layer, int64_t head, int64_t unit, const HalfRows& rows,
              Scratch& scratch);
  std::vector<float> mean_key(const uint16_t* keys) const;
  const AttentionDesc& attention_of(int64_t layer) const;
  void attend_exact(int64_t layer, const QueryRows& queries, const Alike& alike, Scratch& scratch,
                    float* attention_scratch);
  void add_stored(int64_t layer, const QueryRows& queries, Scratch& scratch);

  const Model& model_;
  const Ops& ops_;
  const CacheType &key_type_, &value_type_;
  int64_t head_dim_, kv_heads_, group_, window_, tail_rows_, fresh_rows_;
  int64_t layers_;
  uint64_t bytes_ = 0;
  std::unique_ptr<Rotator> key_rotator_, value_rotator_;  // null: not rotated
  std::vector<Sequence> sequences_;
  AlignedArray<uint16_t> tail_keys_, tail_values_;    // [sequences][layers][kv_heads][tail_rows_]
  AlignedArray<uint16_t> sink_keys_, sink_values_;    // [sequences][layers][kv_heads][kSinks]
  AlignedArray<uint16_t> fresh_keys_, fresh_values_;  // [kv_heads][fresh_rows_], of one layer
  std::vector<Step> steps_;
  std::vector<Scratch> scratch_;
};

}  // namespace walsh
