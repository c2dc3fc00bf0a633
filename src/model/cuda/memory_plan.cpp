#include "model/cuda/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/checked.h"
#include "base/cuda/counted_memory.h"
#include "base/cuda/memory_pool.h"
#include "formats/product.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/weights/matrix.h"
#include "model/cuda/executor_memory.h"
#include "model/cuda/expert_shapes.h"
#include "model/cuda/linear.h"
#include "model/part_executor.h"
#include "model/support.h"

namespace walsh {
namespace {

constexpr int64_t kMaxRows = 4096, kMinRows = 512;

double gib(uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 30);
}

// The most prepared inputs of each shape that one activation needs, as the loader will find them.
class BufferCount {
 public:
  BufferCount(bool folded, const LoadOptions& options) : folded_(folded), options_(options) {}

  void start_site() {
    seen_.clear();
    here_.clear();
  }
  void add(const StoredForm& form, int64_t cols) {
    for (int pass = 0; pass < form.format->passes; ++pass) {
      const BufferShape shape = prepared_shape(form, pass, cols, folded_, options_);
      const Rotation& r = form.rotation[pass];
      const bool none = r.kind == RotationKind::none;
      const Rotated rotated = none ? Rotated() : Rotated(r.kind, r.block, r.seed, r.signs);
      if (!seen_.insert({rotated, shape.cols, shape.planes}).second) continue;
      const auto key = std::tuple(shape.cols, shape.planes, shape.group);
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
  using Rotated = std::tuple<RotationKind, int, uint32_t, bool>;
  using Key = std::tuple<int64_t, int, int>;

  bool folded_;
  const LoadOptions& options_;
  std::set<std::tuple<Rotated, int64_t, int>> seen_;
  std::map<Key, int> here_, most_;
};

// Device memory that `make` makes.
template <typename Make>
uint64_t counted(const Make& make) {
  const cuda::CountedMemory memory;
  make();
  return memory.bytes();
}

// The buffers of a matrix, as placing it makes them.
void make_matrix(const Format& format, int64_t rows, int64_t cols, bool biased) {
  if (format.dense) cuda::Buffer(tensor_bytes(format, rows, cols));
  for (int pass = 0; pass < format.passes && !format.dense; ++pass)
    cuda::allocate_matrix(format, pass, rows, cols);
  if (biased) cuda::Buffer(static_cast<uint64_t>(rows) * sizeof(float));
}

uint64_t matrix_bytes(const CudaShapes::Matrix& m) {
  return counted([&] { make_matrix(*m.format, m.rows, m.cols, m.biased); });
}

// Its arrays as they are stored.
uint64_t embedding_bytes(const Format& format, int64_t rows, int64_t cols) {
  return counted([&] {
    for (const ArraySpec& array : array_specs(format, rows, cols))
      cuda::Buffer(array.bytes);
    if (format.kind == CodeKind::product) cuda::Buffer(size_t{kCodebookBytes});
  });
}

void check_cache(const CacheTypes& types, int64_t head_dim) {
  if (!types.coded()) return;
  const std::string reason = cuda::why_not_coded(types, head_dim);
  if (reason.empty()) return;
  throw Error(ErrorCode::usage,
              fmt::format("cache types '{}' and '{}'", types.keys->name, types.values->name),
              reason + ": use --device cpu");
}

// Forms of an input have names by what makes them different, as the loader has them.
CudaShapes::Experts planned_experts(const WeightSource& source, const ModelConfig& config,
                                    const LoadOptions& options) {
  ExpertShapes experts;
  for (const LayerDesc& layer : config.layers) {
    std::vector<std::tuple<Rotation, int64_t, int>> known;
    experts.add_layer(layer.experts, [&](int matrix, ExpertShapes::Forms& forms) {
      const MatrixDesc& m = layer.matrix(matrix);
      const StoredForm form = source.form_of(m.weight);
      if (form.format->dense) forms.add_floats(m.cols);
      for (int pass = 0; pass < form.format->passes; ++pass) {
        const BufferShape shape = prepared_shape(form, pass, m.cols, source.folded(), options);
        const bool none = form.rotation[pass].kind == RotationKind::none;
        const std::tuple key(none ? kNoRotation : form.rotation[pass], shape.cols, shape.planes);
        const auto found = std::find(known.begin(), known.end(), key);
        forms.add(static_cast<int>(found - known.begin()), shape);
        if (found == known.end()) known.push_back(key);
      }
    });
  }
  return experts.shapes();
}

CudaShapes planned_shapes(const WeightSource& source, const ModelConfig& config,
                          const LoadOptions& options) {
  CudaShapes shapes;
  shapes.activations = options.activations;
  shapes.cache = options.cache;
  BufferCount buffers(source.folded(), options);
  shapes.snapshots = options.use.snapshots;
  if (config.embedding.empty()) shapes.most_rows = kCpuRows;
  const auto add = [&](const MatrixDesc& m, bool head) {
    StoredForm form = source.form_of(m.weight);
    if (m.plain) form.format = &get_format("f32");
    buffers.add(form, m.cols);
    if (m.expert >= 0) return;
    shapes.matrices.push_back({form.format, m.rows, m.cols, head,
                               options.rotate_weights && is_rotated(form), !m.bias.empty()});
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
  shapes.experts = planned_experts(source, config, options);
  return shapes;
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

int64_t choose_cuda_rows(const ModelConfig& config, const CudaShapes& shapes, const KvShape& cache,
                         uint64_t available) {
  int64_t useful =
      std::min(std::max(cache.capacity, cache.sequences), most_expert_rows(shapes.experts));
  if (shapes.most_rows > 0) useful = std::min(useful, shapes.most_rows);
  for (int64_t rows = kMaxRows; rows > kMinRows; rows /= 2) {
    const int64_t chosen = std::min(rows, useful);
    if (cuda_memory_bytes(config, shapes, cache, chosen) <= available) return chosen;
  }
  return std::min(kMinRows, useful);
}

MemoryPlan plan_cuda_memory(const WeightSource& source, const ModelConfig& config,
                            const LoadOptions& options, uint64_t available) {
  refuse_unsupported(source, config, options);
  check_cache(options.cache, widest(config).head_dim);
  MemoryPlan plan;
  const CudaShapes shapes = planned_shapes(source, config, options);
  for (const CudaShapes::Matrix& m : shapes.matrices)
    plan.weights = checked_add(plan.weights, matrix_bytes(m), "GPU memory");
  for (const LayerDesc& layer : config.layers) {
    const uint64_t pool = expert_pool_bytes(source, layer);
    plan.weights = checked_add(plan.weights, counted([&] { cuda::Buffer{pool}; }), "GPU memory");
  }
  const bool is_part = config.embedding.empty();
  if (!is_part) {
    const Format& embedding = source.format_of(config.embedding);
    plan.embedding = embedding_bytes(embedding, config.vocab, config.hidden);
    if (config.tied_head && embedding.dense) plan.weights -= plan.embedding;  // one copy of both
  }
  const int64_t positions = is_part ? kCpuPagePositions : kGpuPagePositions;
  const KvShape shape =
      kv_shape(config, options.cache, positions, options.use).in_pages_of(kGpuPagePositions);
  const uint64_t fixed = plan.total();
  plan.max_rows =
      choose_cuda_rows(config, shapes, shape, available > fixed ? available - fixed : 0);
  plan.cache = counted([&] {
    CudaKvMemory(config, options.cache, shape, plan.max_rows);
    CudaDeltaNet(config, shape.sequences + shapes.snapshots, 0);
  });
  plan.workspace = cuda_memory_bytes(config, shapes, shape, plan.max_rows) - plan.cache;
  if (plan.total() <= available) return plan;
  throw Error(ErrorCode::limit, source.path(),
              fmt::format("does not fit into the GPU: {}, available {:.2f} GiB", plan.text(),
                          gib(available)));
}

}  // namespace walsh
