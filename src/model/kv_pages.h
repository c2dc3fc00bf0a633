// Which pages of the KV cache hold which positions of which sequence: the bookkeeping of a paged
// cache, the same for every device and every type of cache. A page holds consecutive positions of a
// sequence in all layers. Sequences that begin alike share pages; whoever writes into a shared page
// gets a copy of it first.
//
// Source: PagedAttention (Kwon et al. 2023).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "arch/config.h"
#include "cache/cache_type.h"

namespace walsh {

// Positions of a page on the CPU and on GPUs.
inline constexpr int64_t kCpuPagePositions = 256, kGpuPagePositions = 64;

struct SessionOptions {
  int64_t max_positions = 0;  // of a sequence; 0: the model's own maximum, at most 4096
  uint64_t max_bytes = uint64_t{64} << 30;  // of KV cache and workspaces together, in host memory
  int64_t sequences = 1;                    // that are open at once, at most
  // Of all sequences together, in whole pages; 0: as many as all of them can have.
  int64_t cache_positions = 0;
  // Of states of recurrent layers at earlier positions, to come back to; the least recently used
  // give way to new ones.
  int64_t snapshots = 0;
};

struct KvShape {
  int64_t capacity = 0;        // positions of a sequence, at most
  int64_t sequences = 1;       // that are open at once, at most
  int64_t page_positions = 0;  // of a page
  int64_t pages = 0;           // of all sequences together
  // Positions in front of new ones that are written again with them, because they are stored late
  // (coded caches).
  int64_t rewritten = 0;

  int64_t pages_for(int64_t positions) const {
    return (positions + page_positions - 1) / page_positions;
  }
  int64_t pages_per_sequence() const { return pages_for(capacity); }
  // The same memory in smaller pages, of which one of these is several.
  KvShape in_pages_of(int64_t positions) const;
};

// What sessions with these options have, in pages of `page_positions`. Throws usage for more
// positions than the model has, and for numbers of sequences or positions that nobody can want.
KvShape kv_shape(const ModelConfig& config, const CacheTypes& types, int64_t page_positions,
                 const SessionOptions& options);

// The content of page `from` has to become that of page `to`, in all layers.
struct PageCopy {
  int32_t from, to;
};

// `rows` more positions of a sequence.
struct Growth {
  int64_t sequence, rows;
};

class KvPages {
 public:
  explicit KvPages(const KvShape& shape);

  const KvShape& shape() const { return shape_; }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }
  bool is_open(int64_t sequence) const;
  // Tokens of an open sequence; throws usage for another one.
  int64_t length(int64_t sequence) const;
  // Its pages, as many as its length and what was reserved need.
  std::span<const int32_t> pages(int64_t sequence) const;

  // A new sequence without tokens, the lowest number that is free. Throws limit if there is none.
  int64_t open();
  // A new sequence that begins with the first `positions` tokens of another one and shares their
  // pages. Throws as open(), and usage for more tokens than there are.
  int64_t fork(int64_t sequence, int64_t positions);
  void close(int64_t sequence);
  // Keeps the first `positions` tokens; throws usage for more than there are.
  void truncate(int64_t sequence, int64_t positions);

  // Whether reserve() would find the pages that it needs.
  bool fits(std::span<const Growth> growth) const { return needed(growth) <= free_pages(); }
  // Pages for more positions, to be written; each sequence at most once. Returns what has to be
  // copied before. Throws usage beyond the capacity of a sequence and limit if pages run out;
  // nothing has changed then.
  std::vector<PageCopy> reserve(std::span<const Growth> growth);
  // Reserved positions of a sequence have been written.
  void extend(int64_t sequence, int64_t rows);

 private:
  struct Sequence {
    bool open = false;
    int64_t length = 0;
    std::vector<int32_t> pages;
  };

  Sequence& at(int64_t sequence);
  const Sequence& at(int64_t sequence) const;
  int64_t first_written(const Sequence& sequence) const;
  int64_t needed(std::span<const Growth> growth) const;
  int32_t take();
  void release(int32_t page);
  void shrink(Sequence& sequence, int64_t positions);

  KvShape shape_;
  std::vector<Sequence> sequences_;
  std::vector<int32_t> users_;  // sequences that have a page
  std::vector<int32_t> free_;   // the next one last
};

}  // namespace walsh
