#include "model/cuda/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "base/cuda/counted_memory.h"
#include "base/cuda/memory_pool.h"
#include "codec/codec.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/weights/matrix.h"
#include "model/cuda/cuda_model.h"
#include "model/cuda/executor_memory.h"
#include "model/part_executor.h"
#include "model/support.h"

namespace walsh {
namespace {

constexpr int64_t kMaxRows = 4096, kMinRows = 512;

double gib(uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 30);
}

// Returns how much device memory `make` allocates.
template <typename Make>
uint64_t counted(const Make& make) {
  const cuda::CountedMemory memory;
  make();
  return memory.bytes();
}

// Allocates the buffers of a matrix as placing it would.
void make_matrix(const Format& format, int64_t rows, int64_t cols, bool biased) {
  if (format.dense) cuda::Buffer(tensor_bytes(format, rows, cols));
  for (int pass = 0; pass < format.passes && !format.dense; ++pass)
    cuda::allocate_matrix(format, pass, rows, cols);
  if (biased) cuda::Buffer(static_cast<uint64_t>(rows) * sizeof(float));
}

// Returns how many bytes the embedding's stored arrays take.
uint64_t embedding_bytes(const Format& format, int64_t rows, int64_t cols) {
  return counted([&] {
    for (const ArraySpec& array : array_specs(format, rows, cols))
      cuda::Buffer(array.bytes);
    const Codec& codec = codec_of(format);
    if (codec.codebook) cuda::Buffer(size_t{codec.codebook_bytes});
  });
}

}  // namespace

std::string MemoryPlan::text() const {
  return fmt::format(
      "weights {:.2f} GiB, embedding {:.2f}, cache {:.2f}, workspaces for {} rows {:.2f}, together "
      "{:.2f} GiB",
      gib(weights), gib(embedding), gib(cache), max_rows, gib(workspace), gib(total()));
}

uint64_t expert_pool_bytes(const WeightSource& source, const LayerDesc& layer) {
  cuda::MemoryPool pool;
  const cuda::MemoryPool::Scope scope(pool);
  for (const MatrixDesc& m : layer.matrices)
    if (m.expert >= 0) make_matrix(source.format_of(m.weight), m.rows, m.cols, !m.bias.empty());
  return pool.used();
}

int64_t choose_cuda_rows(const CudaSizes& sizes, const KvShape& cache, uint64_t available) {
  const int64_t most = most_expert_rows(expert_shapes(sizes));
  if (sizes.batch_rows > 0) return std::min(sizes.batch_rows, most);
  int64_t useful = std::max(cache.capacity, cache.sequences);
  // A part of a model takes batches as large as the other part's.
  if (sizes.config.embedding.empty()) useful = std::min(useful, kCpuRows);
  useful = std::min(useful, most);
  for (int64_t rows = kMaxRows; rows > kMinRows; rows /= 2) {
    const int64_t chosen = std::min(rows, useful);
    if (cuda_memory_bytes(sizes, cache, chosen) <= available) return chosen;
  }
  return std::min(kMinRows, useful);
}

uint64_t cuda_model_bytes(const WeightSource& source, const ModelConfig& config,
                          const LoadOptions& options, uint64_t available) {
  cuda::select_device(options.device.index);
  return plan_cuda_memory(source, config, options, available).total();
}

MemoryPlan plan_cuda_memory(const WeightSource& source, const ModelConfig& config,
                            const LoadOptions& options, uint64_t available) {
  const ModelSteps steps = make_steps(config, source, options);
  refuse_unsupported(source, config, steps, options);
  return plan_cuda_memory(source, config, steps, options, available);
}

MemoryPlan plan_cuda_memory(const WeightSource& source, const ModelConfig& config,
                            const ModelSteps& steps, const LoadOptions& options,
                            uint64_t available) {
  MemoryPlan plan;
  const CudaSizes sizes{config,
                        steps,
                        options.activations,
                        options.rotate_weights,
                        options.cache,
                        options.use.kept_states(),
                        options.batch_rows};
  each_common_matrix(sizes, [&](const MatrixDesc& m, const MatrixForm& form, bool) {
    const uint64_t bytes =
        counted([&] { make_matrix(*form.in_memory(), m.rows, m.cols, !m.bias.empty()); });
    plan.weights = checked_add(plan.weights, bytes, "GPU memory");
  });
  for (const LayerDesc& layer : config.layers) {
    const uint64_t pool = expert_pool_bytes(source, layer);
    plan.weights = checked_add(plan.weights, counted([&] { cuda::Buffer{pool}; }), "GPU memory");
  }
  const bool is_part = config.embedding.empty();
  if (!is_part) {
    const Format& embedding = source.format_of(config.embedding);
    plan.embedding = embedding_bytes(embedding, config.vocab, config.hidden);
    // The head shares the memory of the embedding.
    if (config.tied_head && embedding.dense) plan.weights -= plan.embedding;
    const TokenTableDesc& layers = config.layer_embedding;
    if (layers.present()) {
      plan.embedding += embedding_bytes(source.format_of(layers.weight), config.vocab, layers.cols);
    }
  }
  const int64_t positions = is_part ? kCpuPagePositions : kGpuPagePositions;
  const KvShape shape =
      kv_shape(config, options.cache, positions, options.use).in_pages_of(kGpuPagePositions);
  const uint64_t fixed = plan.total();
  plan.max_rows = choose_cuda_rows(sizes, shape, available > fixed ? available - fixed : 0);
  plan.cache = counted([&] {
    CudaKvMemory(config, options.cache, shape, plan.max_rows);
    CudaDeltaNet(config, steps, nullptr, shape.sequences + sizes.snapshots, 0);
  });
  plan.workspace = cuda_memory_bytes(sizes, shape, plan.max_rows) - plan.cache;
  if (plan.total() <= available) return plan;
  throw Error(ErrorCode::limit, source.path(),
              fmt::format("does not fit into the GPU: {}, available {:.2f} GiB", plan.text(),
                          gib(available)));
}

}  // namespace walsh
