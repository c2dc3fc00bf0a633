// The keys and values of a session's sequences on the CPU, and attention to them. One class per way
// of keeping them: all fp16 (half_cache.h), or older positions coded (coded_cache.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/ops.h"
#include "model/executor.h"
#include "model/kv_pages.h"
#include "model/model.h"

namespace walsh {

// Queries times heads that are handled at once, unless a kv head alone has more heads.
inline constexpr int64_t kAttentionRows = 144;

// A run's queries from its row `row` on, of the heads that share kv head `head`, as Ops::attention
// has them.
struct QueryRows {
  size_t run;
  int64_t row, m;
  int64_t head;
  const float* q;
  int64_t ldq;
  float* out;
  int64_t ldo;
  float* log_sums = nullptr;  // [m][heads], unless null
};

class KvCache {
 public:
  virtual ~KvCache() = default;

  virtual uint64_t bytes() const = 0;
  // Around the steps of a batch, whose rows are those of `runs` one after the other, at most one of
  // each sequence. A run that begins before the end of its sequence takes back what is there from
  // its position on. abandon() instead of finish() when a step failed: the sequences of the batch
  // begin anew.
  virtual void start(std::span<const Run> runs) = 0;
  virtual void finish() = 0;
  virtual void abandon() = 0;
  // As Executor has them.
  virtual void copy_page(const PageCopy& copy) = 0;
  virtual void fork(int64_t from, int64_t to) = 0;
  // Rotary keys and values of all rows of the batch, [row][stride], before its queries.
  virtual void store(int64_t layer, const float* keys, const float* values, int64_t stride) = 0;
  // For any number of threads at once. scratch: of Ops::attention.
  virtual void attend(int64_t layer, const QueryRows& queries, int thread, float* scratch) = 0;
};

// As the model's cache types say, for the sequences of `pages` and batches of `max_rows` rows.
// Throws limit with the numbers if that is more memory than `max_bytes`.
std::unique_ptr<KvCache> make_kv_cache(const Model& model, const KvPages& pages, int64_t max_rows,
                                       uint64_t max_bytes);

// What a cache of so many bytes is refused with if that is more than `max_bytes`.
void check_cache_bytes(const Model& model, const KvShape& shape, uint64_t bytes,
                       uint64_t max_bytes);

}  // namespace walsh
