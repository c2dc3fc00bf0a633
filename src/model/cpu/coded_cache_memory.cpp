// Visits the memory of a sequence with coded keys and values.
#include <fmt/format.h>

#include "model/cpu/coded_cache.h"

namespace walsh {

// The rows of the tail that are stored already are left out: nobody reads them.
void CodedCache::visit(int64_t index, int64_t positions, bool restores, MemoryVisitor visit) {
  Sequence& sequence = sequences_[static_cast<size_t>(index)];
  if (!restores && sequence.length != positions) take_back(index, positions);
  int64_t stored = sequence.stored;
  visit_elements(visit, &stored, 1);
  if (restores) {
    if (stored < 0 || stored > positions || stored % kCacheBundle != 0 ||
        positions - stored > tail_rows_)
      throw Error(ErrorCode::bad_input, "KV cache",
                  fmt::format("{} of {} positions cannot be coded", stored, positions));
    sequence.stored = sequence.tail = stored;
    sequence.length = positions;
  }
  visit_rows(index, visit);
  if (stored == 0) return;
  visit_elements(visit, sequence.key_offsets.data(), width_);
  for (AlignedArray<uint16_t>* leading : {&leading_keys_, &leading_values_})
    visit_block(visit, *leading, index, width_ * kLeading);
  const int64_t blocks = (stored + kCacheBlock - 1) / kCacheBlock;
  for (const int32_t page : pages_.pages(index).first(static_cast<size_t>(blocks))) {
    for (LayerCache& layer : layers_) {
      if (layer.latents) layer.latents->visit_block(page, visit);
      for (Head& head : layer.heads) {
        head.keys.visit_block(page, visit);
        head.values.visit_block(page, visit);
      }
    }
  }
}

// Visits the rows after the stored positions.
void CodedCache::visit_rows(int64_t index, MemoryVisitor visit) {
  const Sequence& sequence = sequences_[static_cast<size_t>(index)];
  for (const LayerCache& layer : layers_) {
    const int64_t skipped = (sequence.stored - sequence.tail) * layer.head_dim;
    const int64_t size = (sequence.length - sequence.stored) * layer.head_dim;
    for (int64_t head = 0; head < layer.kv_heads; ++head) {
      const HalfRows rows = tail_of(index, layer, head);
      visit_elements(visit, rows.keys + skipped, size);
      if (rows.values != rows.keys) visit_elements(visit, rows.values + skipped, size);
    }
  }
}

}  // namespace walsh
