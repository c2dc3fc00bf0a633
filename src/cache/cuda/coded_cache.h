// Declares how a GPU holds the coded cache of a layer (cache/cache_type.h, docs/formats/cache.md),
// and the operations on it. Keys, values and queries are rotated when they arrive, and outputs are
// rotated back; everything in between is in the rotated domain, fp16 rows included, so that one
// softmax covers stored and fp16 positions.
//
// Stored positions lie in tiles of 16 in the order of tensor core operands
// (kernels/cuda/attention/coded_tile.cuh), and tiles lie in pages of 64 positions, as in an fp16
// cache. Positions that some query still sees as fp16 are rows of a ring per sequence and head; the
// leading four are kept beside it. During a prompt, its keys and values are rows of a buffer that
// all layers reuse.
//
// Heads have 64, 128 or 256 values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/cuda/device.h"
#include "cache/cache_type.h"
#include "cache/cuda/group_code.h"
#include "kernels/cuda/attention/coded_pages.h"
#include "kernels/cuda/rows/rows.h"

namespace walsh::cuda {

static_assert(kCodeBundle == kCacheBundle && kFirstPositions == kLeadingPositions);

// Describes keys or values for kernels.
struct CodedSide : CodedPages {
  GroupCode code;
};

struct CodedView : CodedShape {
  CodedSide keys, values;
};

class CodedLayer {
 public:
  CodedLayer() = default;
  // Allocates a cache in which all sequences together have `pages` pages.
  CodedLayer(const CacheTypes& types, int kv_heads, int head_dim, int64_t pages, int64_t sequences);
  static uint64_t bytes(const CacheTypes& types, int kv_heads, int head_dim, int64_t pages,
                        int64_t sequences);

  CodedView view(const PageTable& table, const int32_t* kept) const;
  bool empty() const { return view_.kv_heads == 0; }
  // Copies page `from` to page `to`.
  void copy_page(int64_t from, int64_t to, Stream stream) const;
  // Copies what sequence `from` has outside of pages to sequence `to`.
  void copy_sequence(int64_t from, int64_t to, Stream stream) const;

 private:
  CodedView view_;
  Buffer key_tiles_, value_tiles_, rings_, leading_, offsets_, factors_;
};

// Points to rows of consecutive positions of one sequence outside its ring: fp16
// [kv_head][capacity][head_dim], starting at position `first`, a multiple of kCacheBundle.
struct FreshRows {
  uint16_t* keys = nullptr;
  uint16_t* values = nullptr;
  int64_t capacity = 0;
  int first = 0;
};

struct BundleRange {
  int sequence = 0, first = 0, last = 0;
};

// Applies norms and rope to queries, keys and values, and rotates them. Queries stay in place; keys
// and values go to the rings, or to `fresh` if all rows belong to one sequence.
void keep_rows(const RopeCall& call, const CodedView& cache, const RowPlaces& rows,
               const FreshRows* fresh, Stream stream);

// Describes the caches of layers whose heads have one size, on the device.
struct CodedLayers {
  int64_t count = 0;
  int kv_heads = 0, head_dim = 0;  // `kv_heads` is the most of a layer.
  Buffer views;                    // It holds CodedView [count].
};

// Groups views by the size of heads.
std::vector<CodedLayers> layers_on_device(std::span<const CodedView> views);

// Stores a bundle of a sequence, whose rows are in the rings, in all layers.
void store_bundle(const CodedLayers& layers, int sequence, int bundle, Stream stream);

// Stores the bundle that has just left each row's window, if there is one (decode).
void store_bundles(const CodedView& cache, const RowPlaces& rows, int64_t m, Stream stream);
// Stores bundles of fresh rows (prefill). Bundle 0 also sets the leading positions and the key
// offset.
void store_bundles(const CodedView& cache, const BundleRange& bundles, const FreshRows& fresh,
                   Stream stream);

// These copy the rows of positions [begin, end) from the ring to `fresh`, and back.
void copy_from_ring(const CodedView& cache, int sequence, int begin, int end,
                    const FreshRows& fresh, Stream stream);
void copy_to_ring(const CodedView& cache, int sequence, int begin, int end, const FreshRows& fresh,
                  Stream stream);
// Decodes stored bundles to rows of `to`, and to rows of the ring. The first positions are taken
// from the leading positions, unless these are null, because layers with a sliding window read them
// as stored.
void load_bundles(const CodedView& cache, const BundleRange& bundles, const FreshRows& to,
                  Stream stream);
void restore_bundles(const CodedView& cache, const BundleRange& bundles, Stream stream);

// Describes attention over what position p sees. With c = max(kept, (p - cache.window) rounded down
// to a multiple of 32), positions 4 to c are read as stored, and 0 to 4 and c to p as fp16. Layers
// with a sliding window have no fp16 first positions. Queries are rotated.
struct CodedAttention : AttentionRows {
  const CodedView* cache = nullptr;
};

// Attends as attend_decode does; fp16 rows are in the rings.
void attend_decode(const CodedAttention& call, int64_t longest, const AttentionScratch& scratch,
                   Stream stream);
// Attends as attend_prefill does. `fresh` has the fp16 rows, i.e. the positions from c of row 0 on.
// `old` has the stored positions (from load_bundles) up to c of the last row, and may be empty if
// that is 0.
void attend_prefill(const CodedAttention& call, const FreshRows& fresh, const FreshRows& old,
                    int position, Stream stream);

}  // namespace walsh::cuda
