// Holds the keys and values of a session's sequences on the CPU, and computes attention over them.
// There is one class per representation: all fp16 (in kv_cache.cpp), or older positions coded
// (coded_cache.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/ops.h"
#include "model/executor.h"
#include "model/kv_pages.h"
#include "model/model.h"

namespace walsh {

// This many queries times heads are processed at once, unless one KV head alone has more.
inline constexpr int64_t kAttentionRows = 144;

// Describes the queries of a run from its row `row` on, for `heads` of those that share KV head
// `head`; the fields are those of GroupAttention.
struct QueryRows {
  size_t run;
  int64_t row, m;
  int64_t head, heads;
  const float* q;
  int64_t ldq;
  float* out;
  int64_t ldo;
  AttentionOptions options;
  float* log_sums = nullptr;                    // [m][heads], or null
  std::span<const SeenTogether> together = {};  // The run has them, in ascending order.
};

class KvCache {
 public:
  virtual ~KvCache() = default;

  virtual uint64_t bytes() const = 0;
  // start() and finish() surround the steps of a batch. The rows of the batch are those of `runs`
  // one after the other, with at most one run per sequence. A run that begins before the end of its
  // sequence discards what is there from its position on. If a step failed, abandon() is called
  // instead of finish(); the sequences of the batch are then empty.
  virtual void start(std::span<const Run> runs) = 0;
  virtual void finish() = 0;
  virtual void abandon() = 0;
  // These are as in Executor.
  virtual void copy_page(const PageCopy& copy) = 0;
  virtual void fork(int64_t from, int64_t to) = 0;
  virtual void visit(int64_t sequence, int64_t positions, bool restores, MemoryVisitor visit) = 0;
  // Stores rotated keys, and values, of all rows of the batch, [row][stride]; without values where
  // these are the beginnings of keys. Called before the queries of the layer.
  virtual void store(int64_t layer, const float* keys, const float* values, int64_t stride) = 0;
  // May be called by any number of threads at once. `scratch` is that of GroupAttention.
  virtual void attend(int64_t layer, const QueryRows& queries, int thread, float* scratch) = 0;
};

// Makes the cache that the model's cache types ask for, for the sequences of `pages` and batches of
// `max_rows` rows. Throws limit, with the numbers, if that takes more than `max_bytes` of memory.
std::unique_ptr<KvCache> make_kv_cache(const Model& model, const KvPages& pages, int64_t max_rows,
                                       uint64_t max_bytes);

// Throws limit if a cache of `bytes` bytes is larger than `max_bytes`.
void check_cache_bytes(const Model& model, const KvShape& shape, uint64_t bytes,
                       uint64_t max_bytes);

}  // namespace walsh
