#include "model/cuda/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/checked.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/matrix.h"
#include "model/cuda/coded_caches.h"
#include "model/cuda/executor.h"
#include "model/cuda/sites.h"

namespace walsh {
namespace {

constexpr int64_t kMaxRows = 4096, kMinRows = 512;
constexpr int64_t kDefaultPositions = 4096;

double gib(uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 30);
}

int planes_of(const Format& format, ActivationMode mode) {
  switch (mode) {
    case ActivationMode::automatic:
      return format.activation_planes;
    case ActivationMode::i8:
      return 1;
    case ActivationMode::i8x2:
      return 2;
    default:
      return 0;
  }
}

// The most prepared inputs of each shape that one site needs, as the loader will find them.
class BufferCount {
 public:
  explicit BufferCount(ActivationMode mode) : mode_(mode) {}

  void start_site() {
    seen_.clear();
    here_.clear();
  }
  void add(const Format& format, int64_t cols) {
    for (int pass = 0; pass < format.passes; ++pass) {
      if (!seen_.insert({format.rotation_block, pass, planes_of(format, mode_)}).second) continue;
      const int planes = planes_of(format, mode_);
      const bool rotated = format.rotation_block > 0;
      const int group = planes == 0 ? 0 : rotated ? kActivationGroup : kPlainGroup;
      const auto key = std::tuple(padded_cols(format, cols), planes, group);
      most_[key] = std::max(most_[key], ++here_[key]);
    }
  }
  std::vector<BufferShape> shapes() const {
    std::vector<BufferShape> all;
    for (const auto& [key, count] : most_)
      all.insert(all.end(), static_cast<size_t>(count),
                 {std::get<0>(key), std::get<1>(key), std::get<2>(key)});
    return all;
  }

 private:
  using Key = std::tuple<int64_t, int, int>;

  ActivationMode mode_;
  std::set<std::tuple<int, int, int>> seen_;
  std::map<Key, int> here_, most_;
};

uint64_t weight_bytes(const Format& format, int64_t rows, int64_t cols) {
  if (format.dense) return tensor_bytes(format, rows, cols);
  uint64_t sum = 0;
  for (int pass = 0; pass < format.passes; ++pass)
    sum = checked_add(sum, cuda::matrix_bytes(format, pass, rows, cols), "GPU memory");
  return sum;
}

void refuse_without_kernels(const WeightSource& source, const std::string& name) {
  const Format& format = source.format_of(name);
  if (format.dense || format.kind == CodeKind::scalar) return;
  throw Error(ErrorCode::usage, source.path() + ": tensor " + name,
              fmt::format("there are no GPU kernels for {}: use --device cpu", format.name));
}

void check_cache(const CacheTypes& types, int64_t head_dim) {
  if (!types.coded()) return;
  const std::string reason = cuda::why_not_coded(types, head_dim);
  if (reason.empty()) return;
  throw Error(ErrorCode::usage,
              fmt::format("cache types '{}' and '{}'", types.keys->name, types.values->name),
              reason + ": use --device cpu");
}

CudaShapes planned_shapes(const WeightSource& source, const ModelConfig& config,
                          const LoadOptions& options) {
  const ActivationMode activations = options.activations;
  CudaShapes shapes;
  shapes.activations = activations;
  shapes.cache = options.cache;
  BufferCount buffers(activations);
  const auto add = [&](const MatrixDesc& m, bool head) {
    refuse_without_kernels(source, m.weight);
    const Format& format = source.format_of(m.weight);
    shapes.matrices.push_back({&format, m.rows, m.cols, head});
    buffers.add(format, m.cols);
  };
  for (const LayerDesc& layer : config.layers) {
    for (size_t input = 0; input < layer.activations.size(); ++input) {
      buffers.start_site();
      for (const MatrixDesc& m : layer.matrices)
        if (static_cast<size_t>(m.input) == input) add(m, false);
    }
  }
  buffers.start_site();
  add(config.head, true);
  shapes.buffers = buffers.shapes();
  return shapes;
}

}  // namespace

std::string MemoryPlan::text() const {
  return fmt::format(
      "weights {:.2f} GiB, embedding {:.2f}, cache {:.2f}, workspaces for {} rows {:.2f}, together "
      "{:.2f} GiB",
      gib(weights), gib(embedding), gib(cache), max_rows, gib(workspace), gib(total()));
}

uint64_t cuda_cache_bytes(const ModelConfig& c, const CacheTypes& types, int64_t positions,
                          int64_t sequences) {
  if (types.coded()) return CudaCodedCaches::bytes(c, types, positions, sequences);
  uint64_t bytes = static_cast<uint64_t>(round_up(positions, cuda::kPageTokens));
  uint64_t heads = 0;  // values of a position in all layers
  for (const LayerDesc& layer : c.layers)
    heads += static_cast<uint64_t>(layer.attention.kv_width());
  for (const uint64_t factor : {static_cast<uint64_t>(sequences), heads, uint64_t{2 * 2}})
    bytes = checked_mul(bytes, factor, "KV cache");
  return bytes;
}

int64_t choose_cuda_rows(const ModelConfig& config, const CudaShapes& shapes, int64_t positions,
                         int64_t sequences, uint64_t available) {
  const int64_t useful = std::max(positions, sequences);
  for (int64_t rows = kMaxRows; rows > kMinRows; rows /= 2) {
    const int64_t chosen = std::min(rows, useful);
    if (cuda_workspace_bytes(config, shapes, positions, sequences, chosen) <= available)
      return chosen;
  }
  return std::min(kMinRows, useful);
}

MemoryPlan plan_cuda_memory(const WeightSource& source, const ModelConfig& config,
                            const LoadOptions& options, uint64_t available) {
  check_cache(options.cache, widest(config).head_dim);
  MemoryPlan plan;
  const CudaShapes shapes = planned_shapes(source, config, options);
  for (const CudaShapes::Matrix& m : shapes.matrices)
    plan.weights = checked_add(plan.weights, weight_bytes(*m.format, m.rows, m.cols), "GPU memory");
  refuse_without_kernels(source, config.embedding);
  const Format& embedding = source.format_of(config.embedding);
  if (!config.tied_head || !embedding.dense)
    plan.embedding = tensor_bytes(embedding, config.vocab, config.hidden);
  const int64_t positions =
      std::min(config.max_positions, options.positions > 0 ? options.positions : kDefaultPositions);
  plan.cache = cuda_cache_bytes(config, options.cache, positions, options.sequences);
  const uint64_t fixed = plan.total();
  plan.max_rows = choose_cuda_rows(config, shapes, positions, options.sequences,
                                   available > fixed ? available - fixed : 0);
  plan.workspace =
      cuda_workspace_bytes(config, shapes, positions, options.sequences, plan.max_rows);
  if (plan.total() <= available) return plan;
  throw Error(ErrorCode::limit, source.path(),
              fmt::format("does not fit into the GPU: {}, available {:.2f} GiB", plan.text(),
                          gib(available)));
}

}  // namespace walsh
