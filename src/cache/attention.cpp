#include "cache/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace walsh {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

size_t elements(int64_t rows, int64_t cols) {
  return static_cast<size_t>(rows * cols);
}

class StoredAttention {
 public:
  StoredAttention(const Ops& ops, const CacheHead& head, const CacheQueries& queries,
                  CacheScratch& scratch)
      : ops_(ops),
        head_(head),
        queries_(queries),
        scratch_(scratch),
        rows_(queries.m * queries.heads),
        value_cols_(head.values->cols()) {}

  void run(float* out, int64_t ldo, float* log_sums) {
    const int64_t first = queries_.begin[0], end = queries_.end[queries_.m - 1];
    for (int64_t r = 0; r < rows_; ++r)
      prepare(r);
    for (int64_t block = first / kCacheBlock; block * kCacheBlock < end; ++block)
      attend(block, std::min(kCacheBlock, end - block * kCacheBlock));
    for (int64_t r = 0; r < rows_; ++r) {
      finish(r, out + r / queries_.heads * ldo + r % queries_.heads * queries_.head_dim);
      log_sums[r] = scratch_.largest[at(r)] + std::log(scratch_.totals[at(r)]);
    }
  }

 private:
  static size_t at(int64_t row) { return static_cast<size_t>(row); }
  float* weights(int64_t row) { return scratch_.weights.data() + row * kCacheBlock; }
  float* sums(int64_t row) { return scratch_.sums.data() + row * value_cols_; }

  void prepare(int64_t row) {
    const int head_dim = queries_.head_dim;
    const float* q =
        queries_.q + row / queries_.heads * queries_.ldq + row % queries_.heads * head_dim;
    double shift = 0;
    if (head_.key_offset != nullptr) {
      for (int d = 0; d < head_dim; ++d)
        shift += double{q[d]} * double{head_.key_offset[d]};
    }
    scratch_.shifts[at(row)] = static_cast<float>(shift * double{queries_.options.scale});
    float* x = scratch_.queries.x.data() + row * scratch_.queries.cols;
    std::copy_n(q, head_dim, x);
    std::fill(x + head_dim, x + scratch_.queries.cols, 0.0f);
    if (head_.key_rotator != nullptr) head_.key_rotator->apply(x);
    scratch_.queries.quantize(ops_, row);
    std::fill_n(sums(row), value_cols_, 0.0f);
    scratch_.largest[at(row)] = kNothing;
    scratch_.totals[at(row)] = 0;
  }

  // Attends to the first `count` positions of a block.
  void attend(int64_t block, int64_t count) {
    const int64_t stored = head_.blocks != nullptr ? head_.blocks[block] : block;
    head_.keys->multiply(ops_, stored, count, scratch_.queries, rows_, scratch_.weights.data());
    for (int64_t r = 0; r < rows_; ++r) {
      const auto i = at(r / queries_.heads);
      const int64_t base = block * kCacheBlock;
      const int64_t from = std::max<int64_t>(0, queries_.begin[i] - base);
      const int64_t to = std::min(count, queries_.end[i] - base);
      if (from >= to) {
        std::fill_n(weights(r), kCacheBlock, 0.0f);
        continue;
      }
      const float shrink =
          ops_.weigh(weights(r), kCacheBlock, from, to, queries_.options, scratch_.shifts[at(r)],
                     &scratch_.largest[at(r)], &scratch_.totals[at(r)]);
      if (shrink == 1) continue;
      for (int64_t d = 0; d < value_cols_; ++d)
        sums(r)[d] *= shrink;
    }
    head_.values->add(ops_, stored, scratch_.weights.data(), rows_, scratch_.scaled,
                      scratch_.sums.data());
  }

  void finish(int64_t row, float* out) {
    const float total = scratch_.totals[at(row)];
    if (total == 0) {
      std::fill_n(out, queries_.head_dim, 0.0f);
      return;
    }
    if (head_.value_rotator != nullptr) head_.value_rotator->invert(sums(row));
    for (int d = 0; d < queries_.head_dim; ++d)
      out[d] = sums(row)[d] / total;
  }

  const Ops& ops_;
  const CacheHead& head_;
  const CacheQueries& queries_;
  CacheScratch& scratch_;
  int64_t rows_, value_cols_;
};

}  // namespace

CacheScratch::CacheScratch(const CacheType& keys, const CacheType& values, int64_t head_dim,
                           int64_t rows, bool exact)
    : queries(query_rows(keys, rows, padded_head_dim(keys, head_dim), exact)),
      scaled(weight_rows(values, rows, padded_head_dim(values, head_dim), exact)),
      weights(elements(rows, kCacheBlock)),
      sums(elements(rows, padded_head_dim(values, head_dim))),
      largest(elements(rows, 1)),
      totals(elements(rows, 1)),
      shifts(elements(rows, 1)) {}

void attend_stored(const Ops& ops, const CacheHead& head, const CacheQueries& queries, float* out,
                   int64_t ldo, float* log_sums, CacheScratch& scratch) {
  StoredAttention(ops, head, queries, scratch).run(out, ldo, log_sums);
}

float merge_attention(float* a, float log_sum_a, const float* b, float log_sum_b, int head_dim) {
  const float largest = std::max(log_sum_a, log_sum_b);
  if (largest == kNothing) return kNothing;
  const float of_a = std::exp(log_sum_a - largest), of_b = std::exp(log_sum_b - largest);
  const float total = of_a + of_b;
  for (int d = 0; d < head_dim; ++d)
    a[d] = (a[d] * of_a + b[d] * of_b) / total;
  return largest + std::log(total);
}

}  // namespace walsh
