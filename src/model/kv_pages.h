// Tracks the pages of a paged KV cache: which pages hold which positions of which sequence. It is
// the same for every device and every type of cache. A page holds consecutive positions of a
// sequence in all layers. Sequences with a common prefix share pages; a sequence that writes into a
// shared page gets a copy of it first.
//
// Source: PagedAttention (Kwon et al. 2023).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "arch/config.h"
#include "cache/cache_type.h"

namespace walsh {

// A page has this many positions in the cache of the CPU, and of a GPU.
inline constexpr int64_t kCpuPagePositions = 256, kGpuPagePositions = 64;

// Where layers are recurrent and texts are drafted, this many tokens of a text can be taken back at
// once.
inline constexpr int64_t kRevocableTokens = 4;

struct SessionOptions {
  // Each sequence may have this many positions; 0: the model's own maximum, at most 4096.
  int64_t max_positions = 0;
  // KV cache and workspaces may take this much host memory together.
  uint64_t max_bytes = uint64_t{64} << 30;
  int64_t sequences = 1;  // At most this many sequences are open at once.
  // This limits the positions of all sequences together, in whole pages; 0: enough for all of them
  // to reach their maximum.
  int64_t cache_positions = 0;
  // This many states of recurrent layers are kept at earlier positions, so that a sequence can
  // return to them. New ones replace the least recently used.
  int64_t snapshots = 0;
  // This many tokens of a sequence can be taken back at once where layers are recurrent
  // (SequenceTokens::revocable), for this many sequences (`revoking`) at the same time.
  int64_t revocable = 0, revoking = 1;

  // Returns the number of states of recurrent layers besides those of the sequences.
  int64_t kept_states() const { return snapshots + revocable * revoking; }
};

struct KvShape {
  int64_t capacity = 0;        // A sequence has at most this many positions.
  int64_t sequences = 1;       // At most this many sequences are open at once.
  int64_t page_positions = 0;  // A page has this many positions.
  int64_t pages = 0;           // All sequences together have this many pages.
  // Coded caches store positions with a delay, so this many positions in front of new ones are
  // written again with them.
  int64_t rewritten = 0;

  int64_t pages_for(int64_t positions) const {
    return (positions + page_positions - 1) / page_positions;
  }
  int64_t pages_per_sequence() const { return pages_for(capacity); }
  // Returns the shape of the same memory divided into smaller pages. A page of this shape then
  // spans several of the new ones.
  KvShape in_pages_of(int64_t positions) const;
};

// Returns the shape of the cache of sessions with these options, in pages of `page_positions`.
// Throws usage for more positions than the model has, and for impossible numbers of sequences or
// positions.
KvShape kv_shape(const ModelConfig& config, const CacheTypes& types, int64_t page_positions,
                 const SessionOptions& options);

// Asks for a copy of page `from` to page `to`, in all layers.
struct PageCopy {
  int32_t from, to;
};

struct Growth {
  int64_t sequence, rows;
};

class KvPages {
 public:
  explicit KvPages(const KvShape& shape);

  const KvShape& shape() const { return shape_; }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }
  bool is_open(int64_t sequence) const;
  // Returns the number of tokens of an open sequence; throws usage if it is not open.
  int64_t length(int64_t sequence) const;
  // Returns the pages of a sequence, which cover its length and its reserved positions.
  std::span<const int32_t> pages(int64_t sequence) const;

  // Opens a sequence without tokens; its number is the lowest free one. Throws limit if none is
  // free.
  int64_t open();
  // Opens a sequence that begins with the first `positions` tokens of another one and shares their
  // pages. Throws what open() throws, and usage for more tokens than there are.
  int64_t fork(int64_t sequence, int64_t positions);
  void close(int64_t sequence);
  // Keeps the first `positions` tokens. Throws usage for more than there are.
  void truncate(int64_t sequence, int64_t positions);

  // Returns whether there are enough free pages for reserve().
  bool fits(std::span<const Growth> growth) const { return needed(growth) <= free_pages(); }
  // Reserves pages for positions that will be written; each sequence may occur once. Returns the
  // copies that have to be made first. Throws usage beyond the capacity of a sequence, and limit if
  // pages run out; then nothing has changed.
  std::vector<PageCopy> reserve(std::span<const Growth> growth);
  // Makes reserved positions that the caller has written part of the sequence.
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
  std::vector<int32_t> users_;  // Each entry is the number of sequences that have the page.
  std::vector<int32_t> free_;   // The last one is used next.
};

}  // namespace walsh
