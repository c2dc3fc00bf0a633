// Stores the older positions of a layer with latent attention. Their latents, which are keys and
// values at once, are coded in the rotated domain (cache/cache_type.h), once. The shared keys
// beside them, an eighth of the numbers and more sensitive, stay fp16, as in FlashMLA (DeepSeek
// 2025).
#pragma once

#include <cstdint>
#include <vector>

#include "base/memory_visitor.h"
#include "cache/cache_type.h"
#include "kernels/ops.h"

namespace walsh {

class CacheLatents {
 public:
  // `type` must be coded.
  CacheLatents(const CacheType& type, int64_t rank, int64_t turned, int64_t capacity);

  int64_t cols() const { return cols_; }  // of a latent
  int64_t width() const { return cols_ + turned_; }
  // Stores rotated latents [kCacheBundle][cols] of the positions from bundle * kCacheBundle on,
  // which are overwritten, and their shared keys, `stride` numbers apart.
  void store(int64_t bundle, float* x, const uint16_t* shared_keys, int64_t stride);
  // Decodes `count` positions from `first` on to fp16 rows [width]: the rotated latent, then the
  // shared key.
  void load(const Ops& ops, int64_t first, int64_t count, uint16_t* rows) const;
  // Copies block `from` to block `to`.
  void copy_block(int64_t from, int64_t to);
  void visit_block(int64_t block, MemoryVisitor visit);
  uint64_t bytes() const;

 private:
  void decode(int64_t position, uint8_t* codes, float* x) const;

  const CacheType* type_;
  int64_t cols_, turned_, row_bytes_, groups_;
  AlignedArray<std::byte> codes_;                // [position][row_bytes]
  AlignedArray<uint16_t> scales_, shared_keys_;  // [position][groups], [position][turned]
};

}  // namespace walsh
