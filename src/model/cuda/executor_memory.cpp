// What an executor allocates, and how much that is.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/checked.h"
#include "model/cuda/executor.h"
#include "model/cuda/memory_plan.h"

namespace walsh {
namespace {

constexpr int64_t kFloat = sizeof(float);
// Logits computed together: 64 MiB, and at least a row for each vector of a decoding step and for
// each sequence, whose tokens are chosen together.
constexpr int64_t kLogitFloats = int64_t{1} << 24;
// Left to the driver, to cuBLASLt, to recorded graphs and to the phases of a step.
constexpr uint64_t kReserve = uint64_t{256} << 20;

int64_t choose_logit_rows(int64_t vocab, int64_t rows, int64_t sequences) {
  return std::min(rows, std::max({kLogitFloats / vocab, cuda::kMaxVectors, sequences}));
}

uint64_t product(std::initializer_list<int64_t> factors) {
  uint64_t bytes = 1;
  for (const int64_t factor : factors)
    bytes = checked_mul(bytes, static_cast<uint64_t>(factor), "GPU workspaces");
  return bytes;
}

cuda::Buffer upload(const std::vector<float>& values, cuda::Uploader& uploader) {
  cuda::Buffer buffer(values.size() * sizeof(float));
  uploader.copy(buffer.as(), values.data(), buffer.bytes());
  return buffer;
}

// Whether what a block computes is not added to the residual stream at once.
bool needs_branch(const ModelConfig& config) {
  const ForwardPass pass(config);
  return std::any_of(pass.layers().begin(), pass.layers().end(),
                     [](const ForwardOp& op) { return op.kind == ForwardOp::Kind::add_branch; });
}

// The rows of `gate` also take those of the stream whose logits are wanted.
int64_t gate_width(const ModelConfig& config) {
  return std::max(widest(config).mlp, config.hidden);
}

cuda::StoredTable stored_table(const CudaEmbedding& embedding) {
  cuda::StoredTable table;
  table.format = embedding.format;
  table.rows = embedding.rows;
  table.cols = embedding.cols;
  if (embedding.format->dense) {
    table.data = embedding.arrays[0].as();
    return table;
  }
  size_t next = 0;
  for (int pass = 0; pass < embedding.format->passes; ++pass) {
    const ScalarCode& code = embedding.format->code[pass];
    cuda::StoredTable::Pass& to = table.pass[pass];
    to.rotation = embedding.rotation[pass];
    to.codes = embedding.arrays[next++].as();
    to.scales = embedding.arrays[next++].as();
    if (code.has_offset) to.offsets = embedding.arrays[next++].as();
    if (code.sub_group != 0) to.sub_scales = embedding.arrays[next++].as();
    if (embedding.format->kind == CodeKind::product) to.codebook = embedding.arrays[next++].as();
  }
  return table;
}

}  // namespace

uint64_t cuda_workspace_bytes(const ModelConfig& c, const CudaShapes& shapes, const KvShape& cache,
                              int64_t rows) {
  const LayerWidths w = widest(c);
  const int64_t positions = cache.capacity, sequences = cache.sequences;
  const int64_t branch = needs_branch(c) ? c.hidden : 0;
  const int64_t widths = c.hidden + branch + 2 * w.query + 2 * w.kv + gate_width(c) + w.mlp + 4;
  uint64_t sum = CudaSites::bytes(shapes, rows) + kReserve;
  sum += product({rows, widths, kFloat});
  const int64_t logit_rows = choose_logit_rows(c.vocab, rows, sequences);
  sum += product({logit_rows, c.vocab, kFloat});
  sum += cuda::SampleScratch::bytes(std::min(sequences, logit_rows), c.vocab);
  sum += product({sequences, cuda_history_stride(positions), int64_t{sizeof(int32_t)}});
  for (const RopeConfig& rope : c.ropes) {
    const size_t pairs = rope_table(rope, w.head_dim, positions).frequencies.size();
    sum += product({positions, 2 * static_cast<int64_t>(pairs), kFloat});
  }
  sum += cuda::AttentionScratch::bytes(std::min(rows, cuda::kMaxVectors), static_cast<int>(w.heads),
                                       static_cast<int>(w.kv_heads), static_cast<int>(w.head_dim));
  if (shapes.cache.coded()) sum += CudaCodedCaches::workspace_bytes(c, shapes.cache, cache, rows);
  return sum;
}

CudaExecutor::CudaExecutor(const Model& model, const KvPages& pages)
    : model_(model),
      pages_(pages),
      device_(cuda::use_device(model.device.index)),
      pass_(model.config) {
  static_assert(kGpuPagePositions == cuda::kPageTokens);
  const KvShape& shape = pages.shape();
  const ModelConfig& c = model.config;
  const CudaShapes shapes = shapes_of(model);
  const uint64_t usable = device_.free_bytes - std::min(device_.free_bytes, model.device_spare);
  const uint64_t cache = cuda_cache_bytes(c, model.cache, shape);
  const uint64_t left = usable > cache ? usable - cache : 0;
  max_rows_ = choose_cuda_rows(c, shapes, shape, left);
  logit_rows_ = choose_logit_rows(c.vocab, max_rows_, shape.sequences);
  const uint64_t workspace = cuda_workspace_bytes(c, shapes, shape, max_rows_);
  if (workspace > left) {
    throw Error(
        ErrorCode::limit, "GPU memory",
        fmt::format("cache {} MiB for {} sequences of {} positions and workspaces {} MiB "
                    "are needed, {} MiB are free",
                    cache >> 20, shape.sequences, shape.capacity, workspace >> 20, usable >> 20));
  }
  cuda::Uploader uploader(uint64_t{1} << 20);
  sites_ = std::make_unique<CudaSites>(shapes, max_rows_);
  allocate_cache(uploader);
  upload_constants(uploader);
  allocate_rows();
  uploader.synchronize();
  build_step();
}

CudaExecutor::~CudaExecutor() = default;

void CudaExecutor::allocate_cache(cuda::Uploader& uploader) {
  const ModelConfig& c = model_.config;
  const KvShape& shape = pages_.shape();
  for (size_t i = 0; i < model_.layers.size(); ++i) {
    const Layer& layer = model_.layers[i];
    const AttentionDesc& a = c.layers[i].attention;
    LayerData& data = layers_.emplace_back();
    if (!model_.cache.coded())
      data.cache =
          cuda::KvPool(static_cast<int>(a.kv_heads), static_cast<int>(a.head_dim), shape.pages);
    for (const Input& input : layer.inputs)
      data.gains.push_back(upload(input.gain, uploader));
    data.q_norm = upload(layer.q_norm, uploader);
    data.k_norm = upload(layer.k_norm, uploader);
    data.after_attention = upload(layer.after_attention, uploader);
    data.after_mlp = upload(layer.after_mlp, uploader);
  }
  uploaded_table_.assign(static_cast<size_t>(shape.sequences * shape.pages_per_sequence()), 0);
  page_table_ = cuda::Buffer(uploaded_table_.size() * sizeof(int32_t), true);
  table_ = {page_table_.as<int32_t>(), shape.pages_per_sequence()};
  if (model_.cache.coded())
    coded_ = std::make_unique<CudaCodedCaches>(model_, table_, shape, max_rows_);
}

void CudaExecutor::upload_constants(cuda::Uploader& uploader) {
  const ModelConfig& c = model_.config;
  const int64_t positions = pages_.shape().capacity;
  final_gain_ = upload(model_.head_input.gain, uploader);
  embedding_ = stored_table(static_cast<const CudaEmbedding&>(*model_.device_embedding));
  for (const RopeConfig& config : c.ropes) {
    const RopeTable table = rope_table(config, widest(c).head_dim, positions);
    std::vector<float> cosines, sines;
    for (int64_t position = 0; position < positions; ++position) {
      for (const float frequency : table.frequencies) {  // angles in float32, as on the CPU
        const float angle = static_cast<float>(position) * frequency;
        cosines.push_back(std::cos(angle) * table.magnitude);
        sines.push_back(std::sin(angle) * table.magnitude);
      }
    }
    ropes_.push_back({static_cast<int>(table.frequencies.size()), upload(cosines, uploader),
                      upload(sines, uploader)});
  }
}

void CudaExecutor::allocate_rows() {
  const ModelConfig& c = model_.config;
  const int64_t sequences = pages_.shape().sequences;
  const LayerWidths w = widest(c);
  const int64_t branch = needs_branch(c) ? c.hidden : 0;
  // In the order of Rows.
  const int64_t widths[] = {c.hidden, branch,        w.query, w.kv,   w.kv,
                            w.query,  gate_width(c), w.mlp,   c.vocab};
  for (size_t i = 0; i < rows_.size(); ++i) {
    const bool logits = static_cast<Rows>(i) == Rows::logits;
    rows_[i] = cuda::Buffer(product({logits ? logit_rows_ : max_rows_, widths[i], kFloat}));
  }
  host_logits_ = cuda::PinnedBuffer(rows_[static_cast<size_t>(Rows::logits)].bytes());
  attention_scratch_ =
      cuda::AttentionScratch(std::min(max_rows_, cuda::kMaxVectors), static_cast<int>(w.heads),
                             static_cast<int>(w.kv_heads), static_cast<int>(w.head_dim));
  staged_ = cuda::Buffer(product({kStaged, max_rows_, int64_t{sizeof(int32_t)}}));
  const int64_t ids = sizeof(int32_t);
  const int64_t state = sizeof(cuda::SampleState);
  sample_states_ = cuda::Buffer(product({sequences, state}), true);
  history_ = cuda::Buffer(product({sequences, history_stride(), ids}), true);
  next_ = cuda::Buffer(product({sequences, ids}), true);
  greedy_.assign(static_cast<size_t>(sequences), false);
  for (Slot& slot : slots_) {
    slot.staged = cuda::PinnedBuffer(staged_.bytes());
    slot.chosen = cuda::PinnedBuffer(product({logit_rows_, ids}));
  }
  if (can_sample())
    sample_scratch_ = cuda::SampleScratch(std::min(sequences, logit_rows_), c.vocab);
}

}  // namespace walsh
