// Keeps older positions of a cache coded (cache/cache_type.h). A query sees as fp16 the first
// kLeading positions, itself and at least the latest `window` positions before it; everything in
// between it sees as it is stored, in whole bundles of positions. What a query sees depends on its
// position alone, so that logits do not depend on how a text was cut into batches. (Positions that
// have been stored stay so when a sequence is taken back to an earlier position or forked.)
//
// Stored positions lie in pages, which sequences may share; a page is a block of the matrices of
// cache/side.h. fp16 rows belong to one sequence.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/aligned.h"
#include "cache/attention.h"
#include "cache/latents.h"
#include "cache/side.h"
#include "model/cpu/kv_cache.h"

namespace walsh {

class CodedCache : public KvCache {
 public:
  static constexpr int64_t kLeading = kLeadingPositions;

  CodedCache(const Model& model, const KvPages& pages, int64_t max_rows, uint64_t max_bytes);

  uint64_t bytes() const override { return bytes_; }
  void start(std::span<const Run> runs) override;
  void finish() override;
  void abandon() override;
  void copy_page(const PageCopy& copy) override;
  void fork(int64_t from, int64_t to) override;
  void visit(int64_t sequence, int64_t positions, bool restores, MemoryVisitor visit) override;
  void store(int64_t layer, const float* keys, const float* values, int64_t stride) override;
  void attend(int64_t layer, const QueryRows& queries, int thread, float* scratch) override;

 private:
  // These are fp16 keys and values of one head, [rows][head_dim] each; latents are both.
  struct HalfRows {
    uint16_t* keys;
    uint16_t* values;
  };
  // Holds the stored positions of one KV head of a layer, of all sequences.
  struct Head {
    CacheKeys keys;
    CacheValues values;
  };
  struct LayerCache {
    int64_t head_dim, kv_heads;
    int64_t rank;   // So many values of a key are its value; 0: values are rows of their own.
    int64_t first;  // Heads of the layers before have this many values per position.
    // Its fresh rows begin here, counted as `first`; layers that no other reads share 0.
    int64_t fresh;
    const Rotator *key_rotator, *value_rotator;  // Null means that they are not rotated.
    std::vector<Head> heads;                     // [kv_heads], or
    std::optional<CacheLatents> latents;         // A layer with a rank has them.
  };
  // Positions before `stored` are stored; those from `tail` up to `length` are fp16 rows of the
  // tail.
  struct Sequence {
    int64_t stored = 0, tail = 0, length = 0;
    std::vector<float>
        key_offsets;  // A head has the mean of its keys of bundle 0 after the leading positions.
  };
  // Says what a run changes in its sequence. It is the same in all layers.
  struct RunPlan {
    Run run;
    int64_t row = 0;     // Its first token is this row of the batch.
    int64_t stored = 0;  // So many positions are stored after the run.
    int64_t move = 0;    // So many rows leave the front of the tail before the run.
    int64_t fresh = -1;  // It begins at this row of fresh_keys_ if the tail has no room for it.

    int64_t end() const { return run.position + run.rows; }
  };
  // The queries [first, first + count) of a call share one stored_end. Behind it they see the
  // positions from `from` on, or the window.
  struct Alike {
    int64_t first, count, end, from;
  };
  // One thread has this memory for heads of one size.
  struct Scratch {
    CacheScratch stored;
    AlignedArray<float> bundle;           // [kCacheBundle][columns]
    AlignedArray<uint16_t> keys, values;  // [kLeading + exact rows][head_dim]
    std::vector<float> out;               // [rows][head_dim]
    std::vector<float> exact_sums, stored_sums;
    std::vector<int64_t> begin, end;
    // Latents need queries in the rotated basis, the decoded positions of a block, the results and
    // log-sums of attention to these, and its scratch memory.
    AlignedArray<float> queries, block_out, attention;
    AlignedArray<uint16_t> block;
    std::vector<float> block_sums;
  };
  // Holds everything that depends on the head size: rotations and the memory of the threads.
  struct HeadSize {
    std::unique_ptr<Rotator> key_rotator, value_rotator;
    int64_t group = 0;  // A KV head has at most this many query heads.
    int64_t rank = 0;   // LayerCache
    std::vector<Scratch> scratch;
  };

  // Returns the most fp16 rows after the leading positions that a query sees, itself included.
  int64_t exact_rows() const { return window_ + kCacheBundle; }
  // Returns up to which position a query reads stored values, if the first `stored` positions exist
  // only in codes.
  int64_t stored_end(int64_t position, int64_t stored) const;
  const LayerCache& layer_at(int64_t layer) const { return layers_[static_cast<size_t>(layer)]; }
  Sequence& sequence_of(const RunPlan& plan);
  Scratch& scratch_of(const LayerCache& layer, int thread);
  // Returns the number that the matrices of a head have for a bundle of a sequence.
  int64_t stored_bundle(int64_t sequence, int64_t bundle) const;
  float* key_offset(int64_t sequence, const LayerCache& layer, int64_t head);
  // Returns the offset of a head's rows among those of `sequence`, with `count` rows per head.
  static int64_t at(const LayerCache& layer, int64_t head, int64_t count) {
    return (layer.first + head * layer.head_dim) * count;
  }
  HalfRows tail_of(int64_t sequence, const LayerCache& layer, int64_t head);
  HalfRows leading_rows(int64_t sequence, const LayerCache& layer, int64_t head);
  // Returns the fp16 rows of a run, and the position of the first one.
  HalfRows rows_of(const RunPlan& plan, const LayerCache& layer, int64_t head);
  int64_t first_of(const RunPlan& plan);

  void describe_layers();
  uint64_t planned_bytes() const;
  void allocate();
  Scratch make_scratch(int64_t head_dim, const HeadSize& size) const;
  void make_latent_scratch(int64_t head_dim, const HeadSize& size, Scratch& scratch) const;
  void visit_rows(int64_t index, MemoryVisitor visit);
  // Cuts sequence `index` so that it ends at `position`.
  void take_back(int64_t index, int64_t position);
  void restore_tail(int64_t index, const LayerCache& layer, int64_t head, int64_t rows);
  void store_head(const RunPlan& plan, LayerCache& layer, int64_t head, const float* keys,
                  const float* values, int64_t stride, Scratch& scratch);
  void encode(const RunPlan& plan, LayerCache& layer, int64_t head, int64_t bundle,
              const HalfRows& rows, Scratch& scratch);
  void encode_latents(LayerCache& layer, int64_t stored, const uint16_t* rows, float* x);
  void restore_latents(int64_t index, const LayerCache& layer, int64_t rows, uint16_t* out);
  static void copy_rows(const HalfRows& from, const HalfRows& to, int64_t count);
  void rotate_queries(const LayerCache& layer, const QueryRows& queries, Scratch& scratch);
  void attend_block(const LayerCache& layer, const QueryRows& queries, int64_t base, int64_t count,
                    Scratch& scratch);
  void add_stored_latents(const LayerCache& layer, const QueryRows& queries, Scratch& scratch);
  void attend_exact(int64_t layer, const QueryRows& queries, const Alike& alike, Scratch& scratch,
                    float* attention_scratch);
  void add_stored(int64_t layer, const QueryRows& queries, Scratch& scratch);

  const Model& model_;
  const Ops& ops_;
  const KvPages& pages_;
  const CacheType &key_type_, &value_type_;
  int64_t window_, tail_rows_, fresh_rows_;
  uint64_t bytes_ = 0;
  std::map<int64_t, HeadSize> sizes_;  // The key is head_dim.
  std::vector<LayerCache> layers_;
  bool has_values_ = false;  // If true, the values of some layer have rows of their own.
  int64_t width_ = 0;        // The heads of all layers have this many values per position.
  int64_t widest_ = 0;       // The heads of the widest layer have this many.
  int64_t fresh_width_ = 0;  // Fresh rows of all layers have this many.
  std::vector<Sequence> sequences_;
  AlignedArray<uint16_t> tail_keys_, tail_values_;        // [sequence][layer][head][tail_rows_]
  AlignedArray<uint16_t> leading_keys_, leading_values_;  // [sequence][layer][head][kLeading]
  AlignedArray<uint16_t> fresh_keys_, fresh_values_;      // [head][fresh_rows_], LayerCache
  std::vector<RunPlan> plans_;
};

}  // namespace walsh
