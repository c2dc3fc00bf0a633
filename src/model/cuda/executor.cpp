#include "model/cuda/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/cuda/counted_memory.h"
#include "model/cuda/cuda_model.h"
#include "model/cuda/memory_plan.h"
#include "model/cuda/one_launch.h"
#include "model/positions.h"

namespace walsh {
namespace {

constexpr uint64_t kFloat = sizeof(float);

CudaSizes sizes_of(const Model& model, int64_t snapshots) {
  return {model.config, model.steps, model.activations, model.rotate_weights,
          model.cache,  snapshots,   model.batch_rows};
}

// Allocates the memory; throws limit with the numbers if there is no room.
std::unique_ptr<CudaMemory> allocate(const Model& model, const KvShape& shape, int64_t snapshots,
                                     uint64_t free) {
  const CudaSizes sizes = sizes_of(model, snapshots);
  // Loading has already used some of the reserve for the code of kernels.
  const uint64_t usable = free - std::min(free, model.device_spare) + kCudaReserve / 2;
  const int64_t rows = choose_cuda_rows(sizes, shape, usable);
  const uint64_t needed = cuda_memory_bytes(sizes, shape, rows);
  if (needed > usable) {
    throw Error(ErrorCode::limit, "GPU memory",
                fmt::format("cache of {} sequences of {} positions and workspaces need {} MiB, {} "
                            "MiB are free",
                            shape.sequences, shape.capacity, needed >> 20,
                            (free - std::min(free, model.device_spare)) >> 20));
  }
  return std::make_unique<CudaMemory>(sizes, shape, rows);
}

}  // namespace

CudaExecutor::CudaExecutor(const Model& model, const KvPages& pages, int64_t snapshots)
    : model_(model),
      pages_(pages),
      shape_(pages.shape().in_pages_of(kGpuPagePositions)),
      device_(cuda::use_device(model.device.index)) {
  memory_ = allocate(model, shape_, snapshots, device_.free_bytes);
  operands_ = std::make_unique<CudaOperands>(model, *memory_);
  batch_ = std::make_unique<CudaBatch>(pages, shape_, *memory_);
  sampling_ = std::make_unique<CudaSampling>(*operands_, pages);
  launches_ = std::make_unique<CudaLaunches>(*operands_, *memory_, *batch_, stream_.get());
  logits_.host = cuda::PinnedBuffer(memory_->rows[static_cast<size_t>(Rows::logits)].bytes());
  upload_constants();
  make_programs();
}

CudaExecutor::~CudaExecutor() = default;

// Programs for more rows exist only if there is one for a single row.
void CudaExecutor::make_programs() {
  for (const int rows : {1, 2, 4}) {
    const int64_t least = rows == 1 ? 0 : rows / 2 + 1;
    if (pages_.shape().sequences < least || std::min(memory_->max_rows, memory_->logit_rows) < rows)
      return;
    OneLaunch one(*operands_, memory_->linear, rows);
    Programs programs{rows, one.layers(), {}};
    if (programs.layers.empty()) return;
    programs.head = one.head();
    programs_.push_back(std::move(programs));
  }
}

const CudaExecutor::Programs* CudaExecutor::programs_for(int64_t rows) const {
  const auto found = std::find_if(programs_.begin(), programs_.end(),
                                  [&](const Programs& p) { return p.rows >= rows; });
  return rows == 0 || found == programs_.end() ? nullptr : &*found;
}

// Gains of unit length are divided by the magnitude of the rope that follows them
// (CudaOperands::rope_call).
void CudaExecutor::upload_constants() {
  cuda::Uploader uploader(uint64_t{1} << 20);
  memory_->vectors.upload(model_, uploader);
  std::vector<float> gains;
  for (const LayerSteps& layer : model_.steps.layers) {
    for (const Step& step : layer.steps) {
      const auto* heads = std::get_if<step::PrepareHeads>(&step.op);
      if (heads == nullptr || !heads->unit().present()) continue;
      const std::span<const float> unit = model_.vector(step.layer, heads->unit_gain);
      gains.assign(unit.begin(), unit.end());
      for (float& gain : gains)
        gain /= operands_->magnitude(heads->rope);
      memory_->vectors.upload(step.layer, heads->unit_gain, gains, uploader);
    }
  }
  for (size_t i = 0; i < memory_->ropes.size(); ++i)
    upload_rope(i, uploader);
  for (size_t i = 0; i < memory_->query_factors.size(); ++i) {
    std::vector<float> factors;
    for (int64_t position = 0; position < pages_.shape().capacity; ++position)
      factors.push_back(query_factor(model_.config, model_.steps.query_factors[i], position));
    upload_values(factors, memory_->query_factors[i], uploader);
  }
  uploader.synchronize();
}

void CudaExecutor::upload_rope(size_t index, cuda::Uploader& uploader) {
  const ModelConfig& c = model_.config;
  const int64_t positions = pages_.shape().capacity;
  const RopeTable table = rope_table(c.ropes[index], rope_head_dim(c, index), positions);
  std::vector<float> cosines, sines;
  for (int64_t position = 0; position < positions; ++position) {
    // Angles are computed in float32, as on the CPU.
    for (const float frequency : table.frequencies) {
      const float angle = static_cast<float>(position) * frequency;
      cosines.push_back(std::cos(angle) * table.magnitude);
      sines.push_back(std::sin(angle) * table.magnitude);
    }
  }
  upload_values(cosines, memory_->ropes[index].cos, uploader);
  upload_values(sines, memory_->ropes[index].sin, uploader);
}

void CudaExecutor::run(const Batch& batch) {
  run_parts(batch, [&] { run_or_replay(); });
  if (!batch.samples) return;
  sampling_->keep(logits_.computed, stream_.get());
  batch_->follow();
}

void CudaExecutor::run_parts(const Batch& batch, FunctionRef<void()> body) {
  cuda::select_device(model_.device.index);
  batch_->describe(batch);
  recorded_.count();
  logits_.computed = 0;
  logits_.on_host = false;
  batch_->send_pages(stream_.get());
  CudaCodedCache* const coded = memory_->cache.coded.get();
  try {
    if (coded != nullptr) coded->start(batch.runs, batch_->groups(), stream_.get());
    batch_->send_rows(stream_.get());
    if (coded != nullptr && programs() != nullptr) coded->store_ahead(stream_.get());
    body();
  } catch (...) {
    if (coded != nullptr) coded->abandon();
    throw;
  }
  if (coded != nullptr) coded->finish();
}

// A batch with state marks cannot be recorded, because the host handles marks with calls of its
// own.
bool CudaExecutor::can_record() const {
  return batch_->decoding() && batch_->rows() > 0 && batch_->rows() <= memory_->logit_rows &&
         batch_->marks().empty();
}

RecordedBatches::Recorded& CudaExecutor::recorded_batch() {
  return recorded_.of({batch_->rows(), cuda::attention_reach(batch_->groups().front().longest),
                       batch_->samples(), sampling_->draws(*batch_)});
}

void CudaExecutor::run_or_replay() {
  if (!can_record()) return compute();
  RecordedBatches::Recorded& recorded = recorded_batch();
  if (!recorded.warm) {  // Kernels and algorithms have to be loaded before they are recorded.
    compute();
    recorded.warm = true;
    return;
  }
  cuda::Graph& graph = recorded.graph[sampling_->next_slot()];
  if (graph.empty()) graph = cuda::Graph::record(stream_.get(), [&] { compute(); });
  if (batch_->samples()) sampling_->free_slot();
  graph.launch(stream_.get());
  logits_.computed = batch_->rows();
}

void CudaExecutor::compute() {
  embed();
  compute_layers(0, static_cast<int64_t>(model_.layers.size()));
  const auto count = static_cast<int64_t>(batch_->wanted().size());
  if (count > 0) logits(0, std::min(memory_->logit_rows, count));
  if (!batch_->samples()) return;
  const Operand rows{Rows::logits, model_.config.vocab};
  sampling_->sample(*batch_, rows, logits_.computed, stream_.get());
}

// Runs the layers as one launch if there is a program for them. A part of a model has one only if
// it computes all of its layers without a break.
void CudaExecutor::compute_layers(int64_t begin, int64_t end) {
  const Programs* const one = programs();
  if (one == nullptr) return launches_->run(begin, end);
  const int64_t rows = batch_->rows();
  if (rows < one->rows) {  // The program also computes rows that have no sequence.
    const auto width = static_cast<uint64_t>((one->rows - rows) * model_.config.hidden);
    cuda::fill_zero(operands_->row({Rows::stream, model_.config.hidden}, rows), width * kFloat,
                    stream_.get());
  }
  one->layers.launch(stream_.get(), static_cast<int>(rows));
  for (const StateMark& mark : batch_->marks()) {
    const auto from = static_cast<int32_t>(batch_->runs()[mark.run].sequence);
    memory_->delta_net.copy(from, mark.slot, stream_.get());
  }
}

// In one of the two parts of a model, consecutive layers are recorded as one graph, which is found
// by the first layer. The first run is not recorded, so that every kernel and algorithm is loaded
// before.
void CudaExecutor::run_layers(int64_t begin, int64_t end) {
  cuda::select_device(model_.device.index);
  if (meter_ != nullptr || !can_record()) return compute_layers(begin, end);
  RecordedBatches::Recorded& recorded = recorded_batch();
  const auto [found, first] = recorded.layers.try_emplace(begin);
  if (first) return compute_layers(begin, end);
  cuda::Graph& graph = found->second;
  if (graph.empty())
    graph = cuda::Graph::record(stream_.get(), [&] { compute_layers(begin, end); });
  graph.launch(stream_.get());
}

void CudaExecutor::logits(int64_t first, int64_t rows) {
  const Programs* const one = programs();
  if (one != nullptr && !one->head.empty() && rows == batch_->rows()) {
    one->head.launch(stream_.get(), static_cast<int>(rows));
    launches_->cap(rows);
  } else {
    launches_->logits(first, rows);
  }
  logits_.computed = rows;
  logits_.on_host = false;
}

std::span<const float> CudaExecutor::logit_row(int64_t index) {
  const auto vocab = static_cast<size_t>(model_.config.vocab);
  if (!logits_.on_host) {
    cuda::copy_to_host(logits_.host.as(), operands_->row({Rows::logits, model_.config.vocab}),
                       static_cast<uint64_t>(logits_.computed) * vocab * kFloat, stream_.get());
    stream_.synchronize();
    logits_.on_host = true;
  }
  return {logits_.host.as<float>() + static_cast<size_t>(index) * vocab, vocab};
}

int64_t CudaExecutor::max_prompts() const {
  return memory_->cache.coded ? CudaCodedCache::max_prompts(shape_) : memory_->max_rows;
}

void CudaExecutor::start_sampling(int64_t sequence, const SamplerOptions& options,
                                  std::span<const int32_t> history) {
  cuda::select_device(model_.device.index);
  sampling_->start(sequence, options, history, stream_.get());
}

void CudaExecutor::copy_state(int32_t from, int32_t to) {
  cuda::select_device(model_.device.index);
  memory_->delta_net.copy(from, to, stream_.get());
}

void CudaExecutor::copy_pages(std::span<const PageCopy> copies) {
  cuda::select_device(model_.device.index);
  const auto each = static_cast<int32_t>(batch_->pool_pages_each());
  std::vector<PageCopy> all;
  for (const PageCopy& copy : copies)
    for (int32_t i = 0; i < each; ++i)
      all.push_back({copy.from * each + i, copy.to * each + i});
  for (const PageCopy& copy : all) {
    if (memory_->cache.coded) {
      memory_->cache.coded->copy_page(copy, stream_.get());
    } else {
      for (const cuda::KvPool& pool : memory_->cache.pools)
        if (pool.kv_heads > 0) pool.copy_page(copy.from, copy.to, stream_.get());
    }
  }
}

void CudaExecutor::fork(int64_t from, int64_t to) {
  cuda::select_device(model_.device.index);
  if (memory_->cache.coded) memory_->cache.coded->fork(from, to, stream_.get());
}

// Only parts of a model that hand rows over allocate this buffer.
void* CudaExecutor::transferred_rows() {
  if (transfer_.rows.bytes() == 0)
    transfer_.rows = cuda::PinnedBuffer(
        static_cast<uint64_t>(memory_->max_rows * model_.config.hidden) * kFloat);
  return transfer_.rows.as();
}

void CudaExecutor::read_rows(Rows which, int64_t first, int64_t count, float* to) {
  cuda::select_device(model_.device.index);
  const Operand rows{which, model_.config.hidden};
  const uint64_t bytes = static_cast<uint64_t>(count * rows.width) * kFloat;
  void* const host = transferred_rows();
  cuda::copy_to_host(host, operands_->row(rows, first), bytes, stream_.get());
  stream_.synchronize();
  std::memcpy(to, host, bytes);
}

void CudaExecutor::write_rows(Rows which, int64_t first, int64_t count, const float* from) {
  cuda::select_device(model_.device.index);
  const Operand rows{which, model_.config.hidden};
  const uint64_t bytes = static_cast<uint64_t>(count * rows.width) * kFloat;
  void* const host = transferred_rows();
  transfer_.sent.wait();
  std::memcpy(host, from, bytes);
  cuda::copy_to_device(operands_->row(rows, first), host, bytes, stream_.get());
  transfer_.sent.record(stream_.get());
}

void CudaExecutor::meter(const std::set<const Input*>& without_gain) {
  cuda::select_device(model_.device.index);
  meter_ = std::make_unique<CudaInputMeter>(model_.config, model_.steps, memory_->max_rows,
                                            without_gain);
  meter_->start(stream_.get());
  launches_->meter(meter_.get());
}

void CudaExecutor::meter_head(int64_t rows) {
  const auto& s = std::get<step::Logits>(model_.steps.head.steps.front().op);
  const CudaSource source{operands_->source(s.from, s.norm, -1, 0), {}};
  meter_->add(model_.input(-1, 0), source, rows, stream_.get());
}

InputMoments CudaExecutor::metered(const Input& input, int expert) {
  cuda::select_device(model_.device.index);
  return meter_->read(input, expert, stream_.get());
}

std::unique_ptr<MeteringExecutor> make_cuda_executor(const Model& model, const KvPages& pages,
                                                     int64_t snapshots) {
  return std::make_unique<CudaExecutor>(model, pages, snapshots);
}

uint64_t cuda_meter_bytes(const ModelConfig& config, int64_t max_rows) {
  const ModelSteps steps = make_steps(config);
  const cuda::CountedMemory counted;
  const CudaInputMeter meter(config, steps, max_rows, {});
  return counted.bytes();
}

std::string why_no_cuda_meter() {
  return cuda::Blas::unavailable_reason();
}

}  // namespace walsh
