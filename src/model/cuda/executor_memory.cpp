#include "model/cuda/executor_memory.h"

#include <algorithm>

#include "base/checked.h"
#include "base/cuda/counted_memory.h"

namespace walsh {
namespace {

constexpr int64_t kFloat = sizeof(float), kId = sizeof(int32_t);
// Up to this many logits (64 MiB) are computed together, but never fewer than a row for each vector
// of a decode step and for each sequence, because their tokens are chosen together.
constexpr int64_t kLogitFloats = int64_t{1} << 24;

cuda::Buffer array(std::initializer_list<int64_t> factors, bool zeroed = false) {
  uint64_t bytes = 1;
  for (const int64_t factor : factors)
    bytes = checked_mul(bytes, static_cast<uint64_t>(factor), "GPU workspaces");
  return cuda::Buffer(bytes, zeroed);
}

// Allocates room for the keys and values that prompts make of latents, as large as the layer with
// the longest ones needs. There is none if some layer has heads that cannot be made of latents.
cuda::HeadScratch latent_heads(const ModelConfig& config, int64_t capacity) {
  int64_t heads = 0, dim = 0, value_dim = 0;
  for (const LayerDesc& layer : config.layers) {
    const AttentionDesc& a = layer.attention;
    if (!a.latent.present()) continue;
    if (!cuda::takes_prompts(a.latent.rope_dim, a.head_dim, a.latent.value_dim)) return {};
    heads = std::max(heads, a.heads);
    dim = std::max(dim, a.head_dim);
    value_dim = std::max(value_dim, a.latent.value_dim);
  }
  if (heads == 0) return {};
  return {capacity, static_cast<int>(heads), static_cast<int>(dim), static_cast<int>(value_dim)};
}

}  // namespace

CudaKvMemory::CudaKvMemory(const ModelConfig& config, const CacheTypes& types, const KvShape& shape,
                           int64_t max_rows)
    : page_table(array({shape.sequences, shape.pages_per_sequence(), kId}, true)),
      table{page_table.as<int32_t>(), shape.pages_per_sequence()} {
  static_assert(kGpuPagePositions == cuda::kPageTokens);
  if (types.coded()) {
    coded = std::make_unique<CudaCodedCache>(config, types, table, shape, max_rows);
    return;
  }
  for (const LayerDesc& layer : config.layers) {
    const AttentionDesc& a = layer.attention;
    if (!a.has_cache()) {
      pools.emplace_back();
      continue;
    }
    if (a.latent.present()) {
      pools.emplace_back(1, static_cast<int>(a.latent.rope_dim), static_cast<int>(a.latent.rank),
                         shape.pages);
    } else {
      pools.emplace_back(static_cast<int>(a.kv_heads), static_cast<int>(a.head_dim), shape.pages);
    }
  }
}

CudaMemory::CudaMemory(const CudaSizes& sizes, const KvShape& shape, int64_t rows_of_batch)
    : max_rows(rows_of_batch),
      logit_rows(std::min(max_rows, std::max({kLogitFloats / sizes.config.vocab, cuda::kMaxVectors,
                                              shape.sequences}))),
      history_stride(2 * shape.capacity),
      cache(sizes.config, sizes.cache, shape, max_rows),
      vectors(sizes.steps),
      delta_net(sizes.config, sizes.steps, &vectors, shape.sequences + sizes.snapshots, max_rows),
      linear(sizes, max_rows),
      experts(expert_shapes(sizes), sizes.config.hidden, max_rows) {
  const ModelConfig& c = sizes.config;
  const LayerWidths w = widest(c);
  for (const RopeConfig& config : c.ropes) {
    const RopeTable table = rope_table(config, rope_head_dim(c, ropes.size()), shape.capacity);
    const auto pairs = static_cast<int64_t>(table.frequencies.size());
    ropes.push_back({static_cast<int>(pairs), table.magnitude,
                     array({shape.capacity, pairs, kFloat}),
                     array({shape.capacity, pairs, kFloat})});
  }
  for (size_t i = 0; i < sizes.steps.query_factors.size(); ++i)
    query_factors.push_back(array({shape.capacity, kFloat}));
  std::array<int64_t, kRowKinds> strides = sizes.steps.strides();
  // After the layers the rows of `gate` hold the rows of the stream whose logits are wanted.
  int64_t& gate = strides[static_cast<size_t>(Rows::gate)];
  gate = std::max(gate, c.hidden);
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool logits = static_cast<Rows>(i) == Rows::logits;
    rows[i] = array({logits ? logit_rows : max_rows, strides[i], kFloat});
  }
  attention_scratch =
      cuda::AttentionScratch(std::min(max_rows, cuda::kDecodeRows), static_cast<int>(w.heads),
                             static_cast<int>(w.kv_heads), static_cast<int>(w.head_dim));
  latent_heads = walsh::latent_heads(c, shape.capacity);
  staged = array({kStaged, max_rows, kId});
  sample_states = array({shape.sequences, int64_t{sizeof(cuda::SampleState)}}, true);
  history = array({shape.sequences, history_stride, kId}, true);
  next = array({shape.sequences, kId}, true);
  if (c.vocab <= cuda::kMaxSampledVocab)
    sample_scratch = cuda::SampleScratch(std::min(shape.sequences, logit_rows), c.vocab);
}

uint64_t cuda_memory_bytes(const CudaSizes& sizes, const KvShape& shape, int64_t max_rows) {
  const cuda::CountedMemory counted;
  const CudaMemory memory(sizes, shape, max_rows);
  return checked_add(counted.bytes(), kCudaReserve, "GPU memory");
}

}  // namespace walsh
