// A cache whose older positions are coded (cache/cache_type.h). A query sees as fp16 the first
// kSinks positions, at least the latest `window` ones before itself and itself, and everything
// between as it is stored, in whole bundles of positions: what it sees depends on its position
// alone, so that logits do not depend on how a text was cut into batches. (What was stored stays so
// when a sequence is taken back to an earlier position or forked.)
//
// What is stored lies in pages, which sequences may share; a page is a block of the matrices of
// cache/side.h. fp16 rows belong to a sequence.
#pragma once

#include <map>
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

  CodedCache(const Model& model, const KvPages& pages, int64_t max_rows, uint64_t max_bytes);

  uint64_t bytes() const override { return bytes_; }
  void start(std::span<const Run> runs) override;
  void finish() override;
  void abandon() override;
  void copy_page(const PageCopy& copy) override;
  void fork(int64_t from, int64_t to) override;
  void store(int64_t layer, const float* keys, const float* values, int64_t stride) override;
  void attend(int64_t layer, const QueryRows& queries, int thread, float* scratch) override;

 private:
  // fp16 keys and values of one head, [rows][head_dim] each.
  struct HalfRows {
    uint16_t* keys;
    uint16_t* values;
  };
  // What is stored of one kv head of a layer, of all sequences.
  struct Head {
    CacheKeys keys;
    CacheValues values;
  };
  struct LayerCache {
    int64_t head_dim, kv_heads, group;
    int64_t first;  // values of heads of a position in the layers before
    const Rotator *key_rotator, *value_rotator;  // null: not rotated
    std::vector<Head> heads;                     // [kv_heads]
  };
  // Positions before `stored` are stored, those from `tail` on are fp16 rows of the tail, up to
  // `length`.
  struct Sequence {
    int64_t stored = 0, tail = 0, length = 0;
    std::vector<float> key_offsets;  // per head: the mean of the keys behind the sinks in bundle 0
  };
  // What a run does to its sequence, the same in all layers.
  struct RunPlan {
    Run run;
    int64_t row = 0;     // of its first token in the batch
    int64_t stored = 0;  // positions that are stored afterwards
    int64_t move = 0;    // rows that the tail loses at its front beforehand
    int64_t fresh = -1;  // first row in fresh_keys_, if the tail has no room for the run

    int64_t end() const { return run.position + run.rows; }
  };
  // Queries [first, first + count) of a call, with one stored_end; of what lies behind that they
  // see the positions from `from` on, or the window.
  struct Alike {
    int64_t first, count, end, from;
  };
  // Of a thread; for heads of one size.
  struct Scratch {
    CacheScratch stored;
    AlignedArray<float> bundle;           // [kCacheBundle][columns]
    AlignedArray<uint16_t> keys, values;  // [kSinks + exact rows][head_dim]
    std::vector<float> out;               // [rows][head_dim]
    std::vector<float> exact_sums, stored_sums;
    std::vector<int64_t> begin, end;
  };
  // Heads of one size: their rotations and what threads need for them.
  struct HeadSize {
    std::unique_ptr<Rotator> key_rotator, value_rotator;
    int64_t group = 0;  // largest
    std::vector<Scratch> scratch;
  };

  // Most fp16 rows behind the sinks that a query sees, itself included.
  int64_t exact_rows() const { return window_ + kCacheBundle; }
  // Positions that a query sees as they are stored, if the first `stored` are nowhere else.
  int64_t stored_end(int64_t position, int64_t stored) const;
  const LayerCache& layer_at(int64_t layer) const { return layers_[static_cast<size_t>(layer)]; }
  Sequence& sequence_of(const RunPlan& plan);
  Scratch& scratch_of(const LayerCache& layer, int thread);
  // The bundle of a sequence as the matrices of a head number them.
  int64_t stored_bundle(int64_t sequence, int64_t bundle) const;
  float* key_offset(int64_t sequence, const LayerCache& layer, int64_t head);
  // Rows of a head among those of `sequence`, of which there are `count` per head.
  static int64_t at(const LayerCache& layer, int64_t head, int64_t count) {
    return (layer.first + head * layer.head_dim) * count;
  }
  HalfRows tail_of(int64_t sequence, const LayerCache& layer, int64_t head);
  HalfRows sinks_of(int64_t sequence, const LayerCache& layer, int64_t head);
  // The fp16 rows of a run, and the position of the first.
  HalfRows rows_of(const RunPlan& plan, const LayerCache& layer, int64_t head);
  int64_t first_of(const RunPlan& plan);

  void describe_layers();
  uint64_t planned_bytes() const;
  void allocate();
  Scratch make_scratch(int64_t head_dim, int64_t group) const;
  // Sequence `index` ends at `position` again.
  void take_back(int64_t index, int64_t position);
  void restore_tail(int64_t index, const LayerCache& layer, int64_t head, int64_t rows);
  void store_head(const RunPlan& plan, LayerCache& layer, int64_t head, const float* keys,
                  const float* values, int64_t stride, Scratch& scratch);
  void encode(const RunPlan& plan, LayerCache& layer, int64_t head, int64_t bundle,
              const HalfRows& rows, Scratch& scratch);
  void attend_exact(int64_t layer, const QueryRows& queries, const Alike& alike, Scratch& scratch,
                    float* attention_scratch);
  void add_stored(int64_t layer, const QueryRows& queries, Scratch& scratch);

  const Model& model_;
  const Ops& ops_;
  const KvPages& pages_;
  const CacheType &key_type_, &value_type_;
  int64_t window_, tail_rows_, fresh_rows_;
  uint64_t bytes_ = 0;
  std::map<int64_t, HeadSize> sizes_;  // by head_dim
  std::vector<LayerCache> layers_;
  int64_t width_ = 0;   // values of heads of a position in all layers
  int64_t widest_ = 0;  // in a layer
  std::vector<Sequence> sequences_;
  AlignedArray<uint16_t> tail_keys_, tail_values_;    // [sequence][layer][head][tail_rows_]
  AlignedArray<uint16_t> sink_keys_, sink_values_;    // [sequence][layer][head][kSinks]
  AlignedArray<uint16_t> fresh_keys_, fresh_values_;  // [head][fresh_rows_], of one layer
  std::vector<RunPlan> plans_;
};

}  // namespace walsh
