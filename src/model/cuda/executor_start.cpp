// How an executor begins: its memory, and the constants in it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/cuda/executor.h"
#include "model/cuda/memory_plan.h"
#include "model/cuda/weights.h"
#include "model/positions.h"

namespace walsh {
namespace {

void upload(const std::vector<float>& values, const cuda::Buffer& to, cuda::Uploader& uploader) {
  if (values.size() * sizeof(float) != to.bytes())
    throw Error(ErrorCode::internal, "GPU constants", "sizes differ from those that were planned");
  uploader.copy(to.as(), values.data(), to.bytes());
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
    if (embedding.format->kind == CodeKind::trellis && !embedding.format->trellis.block_scales)
      to.col_scales = embedding.arrays[next++].as();
    if (embedding.format->kind == CodeKind::product) to.codebook = embedding.arrays[next++].as();
  }
  return table;
}

}  // namespace

CudaExecutor::CudaExecutor(const Model& model, const KvPages& pages, int64_t snapshots)
    : model_(model),
      pages_(pages),
      shape_(pages.shape().in_pages_of(kGpuPagePositions)),
      device_(cuda::use_device(model.device.index)),
      pass_(model.config) {
  const KvShape& shape = shape_;
  const CudaShapes shapes = shapes_of(model, snapshots);
  const uint64_t usable = device_.free_bytes - std::min(device_.free_bytes, model.device_spare);
  const int64_t rows = choose_cuda_rows(model.config, shapes, shape, usable);
  const uint64_t needed = cuda_memory_bytes(model.config, shapes, shape, rows);
  if (needed > usable) {
    throw Error(ErrorCode::limit, "GPU memory",
                fmt::format("cache of {} sequences of {} positions and workspaces need {} MiB, {} "
                            "MiB are free",
                            shape.sequences, shape.capacity, needed >> 20, usable >> 20));
  }
  memory_ = std::make_unique<CudaMemory>(model.config, shapes, shape, rows);
  uploaded_table_.assign(static_cast<size_t>(shape.sequences * shape.pages_per_sequence()), 0);
  greedy_.assign(static_cast<size_t>(shape.sequences), false);
  host_logits_ = cuda::PinnedBuffer(memory_->rows[static_cast<size_t>(Rows::logits)].bytes());
  if (!model.has_embedding()) {
    host_rows_ =
        cuda::PinnedBuffer(static_cast<uint64_t>(rows * model.config.hidden) * sizeof(float));
  }
  for (Slot& slot : slots_) {
    slot.staged = cuda::PinnedBuffer(memory_->staged.bytes());
    slot.chosen = cuda::PinnedBuffer(static_cast<uint64_t>(memory_->logit_rows) * sizeof(int32_t));
  }
  upload_constants();
  build_programs();
}

CudaExecutor::~CudaExecutor() = default;

void CudaExecutor::upload_constants() {
  cuda::Uploader uploader(uint64_t{1} << 20);
  for (size_t i = 0; i < model_.layers.size(); ++i) {
    const Layer& layer = model_.layers[i];
    const CudaMemory::Gains& gains = memory_->gains[i];
    for (size_t input = 0; input < layer.inputs.size(); ++input)
      upload(layer.inputs[input].gain, gains.inputs[input], uploader);
    const AttentionDesc& a = model_.config.layers[i].attention;
    const std::vector<float> ones(static_cast<size_t>(a.unit_eps != 0 ? a.head_dim : 0), 1.0f);
    upload(ones.empty() ? layer.q_norm : ones, gains.q_norm, uploader);
    upload(ones.empty() ? layer.k_norm : ones, gains.k_norm, uploader);
    upload(layer.after_attention, gains.after_attention, uploader);
    upload(layer.after_mlp, gains.after_mlp, uploader);
    upload(layer.sinks, gains.sinks, uploader);
    upload(layer.choice_bias, gains.choice_bias, uploader);
    const LayerDesc& desc = model_.config.layers[i];
    expert_strides_.push_back(desc.experts.present() ? expert_stride(desc, layer) : 0);
  }
  memory_->delta_net.upload(model_, uploader);
  upload(model_.head_input.gain, memory_->final_gain, uploader);
  if (model_.has_embedding())
    embedding_ = stored_table(static_cast<const CudaEmbedding&>(*model_.device_embedding));
  for (size_t i = 0; i < memory_->ropes.size(); ++i)
    upload_rope(i, uploader);
  upload_growth(uploader);
  uploader.synchronize();
}

// Factors of queries, the same in all layers that have them (model/support.cpp).
void CudaExecutor::upload_growth(cuda::Uploader& uploader) {
  for (const LayerDesc& layer : model_.config.layers) {
    const AttentionDesc& a = layer.attention;
    if (a.growth == 0) continue;
    std::vector<float> factors;
    for (int64_t position = 0; position < pages_.shape().capacity; ++position)
      factors.push_back(query_growth(a, position));
    return upload(factors, memory_->growth, uploader);
  }
}

void CudaExecutor::upload_rope(size_t index, cuda::Uploader& uploader) {
  const ModelConfig& c = model_.config;
  const int64_t positions = pages_.shape().capacity;
  const RopeTable table = rope_table(c.ropes[index], widest(c).head_dim, positions);
  std::vector<float> cosines, sines, queries;
  for (int64_t position = 0; position < positions; ++position) {
    if (c.ropes[index].query_beta != 0) queries.push_back(query_scale(c.ropes[index], position));
    for (const float frequency : table.frequencies) {  // angles in float32, as on the CPU
      const float angle = static_cast<float>(position) * frequency;
      cosines.push_back(std::cos(angle) * table.magnitude);
      sines.push_back(std::sin(angle) * table.magnitude);
    }
  }
  upload(cosines, memory_->ropes[index].cos, uploader);
  upload(sines, memory_->ropes[index].sin, uploader);
  upload(queries, memory_->ropes[index].query, uploader);
}

}  // namespace walsh
