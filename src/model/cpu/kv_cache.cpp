#include "model/cpu/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/aligned.h"
#include "base/checked.h"
#include "cache/half_rows.h"
#include "model/cpu/coded_cache.h"

namespace walsh {
namespace {

// Keeps everything as fp16.
class HalfCache final : public KvCache {
 public:
  HalfCache(const Model& model, const KvPages& pages, uint64_t max_bytes);

  uint64_t bytes() const override;
  void start(std::span<const Run> runs) override { runs_ = runs; }
  void finish() override {}
  void abandon() override {}
  void copy_page(const PageCopy& copy) override;
  void fork(int64_t, int64_t) override {}
  void visit(int64_t sequence, int64_t positions, bool restores, MemoryVisitor visit) override;
  void store(int64_t layer, const float* keys, const float* values, int64_t stride) override;
  void attend(int64_t layer, const QueryRows& queries, int thread, float* scratch) override;

 private:
  const AttentionDesc& attention_of(int64_t layer) const;
  KvView view(int64_t layer, int64_t sequence) const;
  void store_row(const KvView& view, int64_t position, const float* keys, const float* values);
  // These return how many numbers a page of a layer has.
  int64_t key_page(int64_t layer) const;
  int64_t value_page(int64_t layer) const;

  const Model& model_;
  const Ops& ops_;
  const KvPages& pages_;
  std::span<const Run> runs_;
  // The layers begin at these places in the arrays. Where values are the beginnings of keys, only
  // keys are kept.
  std::vector<int64_t> layer_keys_, layer_values_;
  AlignedArray<uint16_t> keys_, values_;  // [layer][page][kv_heads][page positions][head_dim]
};

HalfCache::HalfCache(const Model& model, const KvPages& pages, uint64_t max_bytes)
    : model_(model), ops_(ops()), pages_(pages) {
  const char* where = "KV cache";
  const auto pages_of = [&](int64_t page) {
    return checked_mul(static_cast<uint64_t>(pages.shape().pages), static_cast<uint64_t>(page),
                       where);
  };
  uint64_t keys = 0, values = 0;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    layer_keys_.push_back(static_cast<int64_t>(keys));
    layer_values_.push_back(static_cast<int64_t>(values));
    keys = checked_add(keys, pages_of(key_page(layer)), where);
    values = checked_add(values, pages_of(value_page(layer)), where);
  }
  check_cache_bytes(model, pages.shape(),
                    checked_mul(checked_add(keys, values, where), sizeof(uint16_t), where),
                    max_bytes);
  keys_ = AlignedArray<uint16_t>(keys);
  values_ = AlignedArray<uint16_t>(values);
}

uint64_t HalfCache::bytes() const {
  return (keys_.size() + values_.size()) * sizeof(uint16_t);
}

const AttentionDesc& HalfCache::attention_of(int64_t layer) const {
  return model_.config.layers[static_cast<size_t>(layer)].attention;
}

int64_t HalfCache::key_page(int64_t layer) const {
  return attention_of(layer).cached_keys() * pages_.shape().page_positions;
}

int64_t HalfCache::value_page(int64_t layer) const {
  return attention_of(layer).cached_values() * pages_.shape().page_positions;
}

KvView HalfCache::view(int64_t layer, int64_t sequence) const {
  const AttentionDesc& a = attention_of(layer);
  const auto at = static_cast<size_t>(layer);
  const uint16_t* keys = keys_.data() + layer_keys_[at];
  const bool latent = a.latent.present();
  return {keys,
          latent ? keys : values_.data() + layer_values_[at],
          pages_.shape().page_positions,
          static_cast<int>(a.cache_heads()),
          static_cast<int>(a.cache_dim()),
          pages_.pages(sequence).data(),
          latent ? static_cast<int>(a.latent.rank) : 0};
}

void HalfCache::copy_page(const PageCopy& copy) {
  const auto copy_in = [&](uint16_t* layer, int64_t size) {
    std::copy_n(layer + copy.from * size, size, layer + copy.to * size);
  };
  for (size_t i = 0; i < layer_keys_.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    copy_in(keys_.data() + layer_keys_[i], key_page(layer));
    copy_in(values_.data() + layer_values_[i], value_page(layer));
  }
}

void HalfCache::visit(int64_t sequence, int64_t positions, bool, MemoryVisitor visit) {
  for (size_t i = 0; i < layer_keys_.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    if (key_page(layer) == 0) continue;
    const KvView at = view(layer, sequence);
    for (int64_t first = 0; first < positions; first += at.page_positions) {
      const int64_t size = std::min(at.page_positions, positions - first) * at.head_dim;
      for (int64_t head = 0; head < at.kv_heads; ++head) {
        const int64_t offset = at.offset(head, first);
        visit_elements(visit, keys_.data() + (at.keys - keys_.data()) + offset, size);
        if (value_page(layer) > 0)
          visit_elements(visit, values_.data() + (at.values - values_.data()) + offset, size);
      }
    }
  }
}

void HalfCache::store_row(const KvView& view, int64_t position, const float* keys,
                          const float* values) {
  for (int64_t h = 0; h < view.kv_heads; ++h) {
    const int64_t to = view.offset(h, position), from = h * view.head_dim;
    store_half_row(ops_, keys + from, view.head_dim,
                   keys_.data() + (view.keys - keys_.data()) + to);
    if (values == nullptr) continue;
    store_half_row(ops_, values + from, view.head_dim,
                   values_.data() + (view.values - values_.data()) + to);
  }
}

void HalfCache::store(int64_t layer, const float* keys, const float* values, int64_t stride) {
  int64_t row = 0;
  for (const Run& run : runs_) {
    const int64_t first = row;
    const KvView to = view(layer, run.sequence);
    const auto store_rows = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t from = (first + i) * stride;
        store_row(to, run.position + i, keys + from, values == nullptr ? nullptr : values + from);
      }
    };
    if (run.rows == 1) {
      store_rows(0, 1);
    } else {
      model_.pool().for_ranges(run.rows, 1, store_rows);
    }
    row += run.rows;
  }
}

void HalfCache::attend(int64_t layer, const QueryRows& queries, int, float* scratch) {
  const Run& run = runs_[queries.run];
  const int64_t begin = run.position + queries.row, end = begin + queries.m;
  GroupAttention call = {view(layer, run.sequence),
                         static_cast<int>(queries.head),
                         static_cast<int>(queries.heads),
                         queries.m,
                         begin,
                         queries.options,
                         queries.q,
                         queries.ldq,
                         queries.out,
                         queries.ldo,
                         queries.log_sums,
                         scratch};
  // Attends from the positions [from, to) on, which see what the options say.
  const auto attend_to = [&](int64_t from, int64_t to) {
    if (from >= to) return;
    const int64_t first = from - begin;
    call.m = to - from;
    call.q = queries.q + first * queries.ldq;
    call.out = queries.out + first * queries.ldo;
    if (queries.log_sums != nullptr) call.log_sums = queries.log_sums + first * queries.heads;
    ops_.attention(call);
  };
  int64_t next = begin;
  for (const SeenTogether& all : queries.together) {
    if (all.end <= next || all.begin >= end) continue;
    call.position = next;
    attend_to(next, all.begin);
    // Each of them sees what it would see at the last position, as far back as from its own one or
    // the first of them.
    for (next = std::max(next, all.begin); next < std::min(end, all.end); ++next) {
      const int64_t oldest = std::min(all.begin, queries.options.first_seen(next));
      call.position = all.end - 1;
      call.options.chunk = 0;
      call.options.window = oldest == 0 ? 0 : all.end - oldest;
      attend_to(next, next + 1);
    }
    call.options = queries.options;
  }
  call.position = next;
  attend_to(next, end);
}

}  // namespace

std::unique_ptr<KvCache> make_kv_cache(const Model& model, const KvPages& pages, int64_t max_rows,
                                       uint64_t max_bytes) {
  const std::vector<LayerDesc>& layers = model.config.layers;
  const bool attends = std::any_of(layers.begin(), layers.end(),
                                   [](const LayerDesc& l) { return l.attention.present(); });
  // If the window covers everything, or there are no keys, nothing would ever be coded.
  if (!model.cache.coded() || !attends || model.cache.window >= pages.shape().capacity)
    return std::make_unique<HalfCache>(model, pages, max_bytes);
  return std::make_unique<CodedCache>(model, pages, max_rows, max_bytes);
}

void check_cache_bytes(const Model& model, const KvShape& shape, uint64_t bytes,
                       uint64_t max_bytes) {
  if (bytes <= max_bytes) return;
  throw Error(
      ErrorCode::limit, "KV cache",
      fmt::format("{} sequences of {} positions, {} pages of {}, need {} MiB with keys as "
                  "{} and values as {}, the limit is {} MiB",
                  shape.sequences, shape.capacity, shape.pages, shape.page_positions, bytes >> 20,
                  model.cache.keys->name, model.cache.values->name, max_bytes >> 20));
}

}  // namespace walsh
