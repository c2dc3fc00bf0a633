// Stores the older keys or values of one KV head, coded or fp16, in blocks of positions that are
// operands of the matrix kernels: a block of keys is a matrix [positions][head_dim], so that logits
// are its product with the query; a block of values is a matrix [head_dim][positions]. Everything
// is in the rotated domain (cache/cache_type.h): queries are rotated once, and outputs rotated back
// once.
#pragma once

#include <cstdint>
#include <vector>

#include "base/memory_visitor.h"
#include "cache/cache_type.h"
#include "kernels/ops.h"

namespace walsh {

inline constexpr int64_t kCacheBlock = 256;  // positions per matrix

// Keys or values multiply these rows: float32, and int8 planes if the kernels read them.
struct CacheRows {
  AlignedArray<float> x;  // [rows][cols]
  ActivationsI8 i8;       // without planes, the kernels read x
  int64_t cols = 0;

  CacheRows() = default;
  CacheRows(int64_t rows, int64_t cols, int group, int planes);  // planes 0: none
  bool quantized() const { return !i8.q.empty(); }
  void quantize(const Ops& ops, int64_t row);
};

class CacheKeys {
 public:
  CacheKeys(const CacheType& type, int64_t head_dim, int64_t capacity);

  int64_t cols() const { return cols_; }
  // Stores keys [kCacheBundle][cols] of the positions from bundle * kCacheBundle on; overwrites x.
  void store(const Ops& ops, int64_t bundle, float* x);
  // Sets out[r][j] = q[r] . key(block * kCacheBlock + j) for j < count, a multiple of kCacheBundle.
  void multiply(const Ops& ops, int64_t block, int64_t count, const CacheRows& q, int64_t rows,
                float* out) const;
  // Copies block `from` to block `to`.
  void copy_block(int64_t from, int64_t to);
  void visit_block(int64_t block, MemoryVisitor visit);
  // Decodes the keys of a bundle to x [kCacheBundle][cols].
  void load(const Ops& ops, int64_t bundle, float* x) const;
  uint64_t bytes() const;

 private:
  const CacheType* type_;
  int64_t cols_;
  std::vector<PanelMatrix> blocks_;  // coded: [kCacheBlock][cols] each
  AlignedArray<uint16_t> halves_;    // fp16: [positions][cols]
};

class CacheValues {
 public:
  CacheValues(const CacheType& type, int64_t head_dim, int64_t capacity);

  int64_t cols() const { return cols_; }
  // Stores values [kCacheBundle][cols] of the positions from bundle * kCacheBundle on; overwrites
  // x.
  void store(const Ops& ops, int64_t bundle, float* x);
  // Computes sums[r][d] += sum over j of weights[r][j] * value(block * kCacheBlock + j)[d].
  // weights[r] has kCacheBlock entries, with zeros for positions that are not stored. `scaled` is
  // scratch with as many rows.
  void add(const Ops& ops, int64_t block, const float* weights, int64_t rows, CacheRows& scaled,
           float* sums) const;
  // Copies block `from` to block `to`.
  void copy_block(int64_t from, int64_t to);
  void visit_block(int64_t block, MemoryVisitor visit);
  // Decodes the values of a bundle to x [kCacheBundle][cols].
  void load(const Ops& ops, int64_t bundle, float* x) const;
  uint64_t bytes() const;

 private:
  void store_halves(int64_t block, int64_t first, const float* x);
  void add_halves(const Ops& ops, int64_t block, int64_t rows, CacheRows& scaled,
                  float* sums) const;
  int64_t groups() const;
  int64_t group_size() const { return cols_ / groups(); }

  const CacheType* type_;
  int64_t cols_;
  std::vector<PanelMatrix> blocks_;  // coded: [cols][kCacheBlock] each, without scales
  AlignedArray<uint16_t> scales_;    // fp16 [block][group][kCacheBlock]; fp16 values: 1 or NaN
  AlignedArray<uint16_t> halves_;    // fp16: [block][cols][kCacheBlock]
};

// These make memory for queries that are multiplied with keys of a type, and for the scratch of
// CacheValues::add. With `exact`, products are computed in float32.
CacheRows query_rows(const CacheType& type, int64_t rows, int64_t cols, bool exact);
CacheRows weight_rows(const CacheType& type, int64_t rows, int64_t cols, bool exact);

}  // namespace walsh
