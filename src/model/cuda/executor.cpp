#include "model/cuda/executor.h"

#include <algorithm>

#include "model/cuda/cuda_model.h"
#include "model/cuda/memory_plan.h"

namespace walsh {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr size_t kMostRecorded = 64;
// Up to here a few small copies are less than one of the whole array.
constexpr int64_t kFewRows = 64;

// Whether the persistent kernel has all that this attention does.
bool is_plain(const AttentionDesc& a) {
  return !a.norms_all_heads() && a.sinks.empty() && !a.latent.present() && a.chunk == 0 &&
         a.unit_eps == 0 && a.growth == 0;
}

// Whether a program has the product when it has the layer's experts: those of the router and of a
// shared expert.
bool is_part_of_experts(const LayerDesc& layer, const ForwardOp& op) {
  return layer.experts.present() &&
         (op.matmuls.front().to == Rows::router || op.from == Rows::gate);
}

// Whether it has the product when it has the step of the layer's delta net.
bool is_part_of_delta(const ForwardOp::Matmul& product) {
  return product.to == Rows::decay || product.to == Rows::strength;
}

}  // namespace

void CudaExecutor::run(const Batch& batch) {
  run_parts(batch, [&] { run_or_replay(); });
  if (batch.samples) keep_chosen();
}

void CudaExecutor::run_parts(const Batch& batch, FunctionRef<void()> body) {
  cuda::select_device(model_.device.index);
  describe(batch);
  const bool placed = is_placed();
  placed_.clear();
  computed_logits_ = 0;
  logits_read_ = false;
  upload_pages();
  try {
    if (memory_->cache.coded) memory_->cache.coded->start(batch.runs, groups_, stream_.get());
    if (!placed) stage();
    body();
  } catch (...) {
    if (memory_->cache.coded) memory_->cache.coded->abandon();
    throw;
  }
  if (memory_->cache.coded) memory_->cache.coded->finish();
}

void CudaExecutor::describe(const Batch& batch) {
  batch_ = batch;
  ++batches_;
  m_ = 0;
  groups_ = group_rows(batch.runs);
  wanted_.clear();
  decoding_ = true;
  for (const Run& run : batch.runs) {
    decoding_ = decoding_ && run.rows == 1 && run.logits == 1;
    m_ += run.rows;
    for (int64_t row = m_ - run.logits; row < m_; ++row)
      wanted_.push_back(static_cast<int32_t>(row));
  }
}

// Whether the batch is the one that the last one made (SampledRows::places_next).
bool CudaExecutor::is_placed() const {
  return std::equal(batch_.runs.begin(), batch_.runs.end(), placed_.begin(), placed_.end()) &&
         std::all_of(batch_.tokens.begin(), batch_.tokens.end(),
                     [](int32_t token) { return token == kChosenToken; });
}

// What is recorded for the batch's shape; of many shapes the one that was not used for the longest
// time is forgotten.
CudaExecutor::Recorded& CudaExecutor::recorded_batch() {
  const RecordedShape shape{m_, cuda::attention_reach(groups_.front().longest), batch_.samples,
                            draws()};
  if (!recorded_.contains(shape) && recorded_.size() == kMostRecorded) {
    recorded_.erase(std::min_element(
        recorded_.begin(), recorded_.end(),
        [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
  }
  Recorded& recorded = recorded_[shape];
  recorded.used = batches_;
  return recorded;
}

// Marks are host calls of their own.
bool CudaExecutor::can_record() const {
  return decoding_ && m_ > 0 && m_ <= memory_->logit_rows && batch_.marks.empty();
}

void CudaExecutor::run_or_replay() {
  if (!can_record()) return compute();
  Recorded& recorded = recorded_batch();
  if (!recorded.warm) {  // every kernel and algorithm is loaded before it is recorded
    compute();
    recorded.warm = true;
    return;
  }
  cuda::Graph& graph = recorded.graph[submitted_ % kOpenBatches];
  if (graph.empty()) graph = cuda::Graph::record(stream_.get(), [&] { compute(); });
  if (batch_.samples) free_slot();
  graph.launch(stream_.get());
  computed_logits_ = m_;
}

// The forward pass: all layers as one launch where there is a program of them.
void CudaExecutor::compute() {
  embed();
  compute_layers(0, static_cast<int64_t>(model_.layers.size()));
  const auto count = static_cast<int64_t>(wanted_.size());
  if (count > 0) logits(0, std::min(memory_->logit_rows, count));
  if (batch_.samples) sample();
}

void CudaExecutor::compute_layers(int64_t begin, int64_t end) {
  // Only a part whose layers are all computed without a break has a program.
  if (decoding_ && m_ == 1 && !layer_program_.empty()) {
    layer_program_.launch(stream_.get());
    for (const StateMark& mark : batch_.marks) {
      const auto from = static_cast<int32_t>(batch_.runs[mark.run].sequence);
      memory_->delta_net.copy(from, mark.slot, stream_.get());
    }
    return;
  }
  const int64_t first = wanted_.empty() ? m_ : wanted_.front();
  for (int64_t layer = begin; layer < end; ++layer) {
    for (const ForwardOp& op : pass_.layer(layer)) {
      const int64_t skip = pass_.only_wanted_rows(op) ? first : 0;
      if (skip < m_ || op.kind == ForwardOp::Kind::delta_rule) execute(op, skip);
    }
  }
}

// The pages of a sequence in the pools, of which one of the session may be several.
std::vector<int32_t> CudaExecutor::pool_pages(int64_t sequence) const {
  const int64_t each = pages_.shape().page_positions / shape_.page_positions;
  std::vector<int32_t> all;
  for (const int32_t page : pages_.pages(sequence))
    for (int64_t i = 0; i < each; ++i)
      all.push_back(static_cast<int32_t>(page * each + i));
  const auto most = static_cast<size_t>(memory_->cache.table.per_sequence);
  if (all.size() > most) all.resize(most);
  return all;
}

// Pages of the batch's sequences that the device does not know yet. What is uploaded is copied at
// once, so that the host may go on.
void CudaExecutor::upload_pages() {
  for (const Run& run : batch_.runs) {
    const std::vector<int32_t> pages = pool_pages(run.sequence);
    const int64_t at = run.sequence * memory_->cache.table.per_sequence;
    int32_t* known = uploaded_table_.data() + at;
    const auto [first, differs] = std::mismatch(pages.begin(), pages.end(), known);
    if (first == pages.end()) continue;
    const auto from = first - pages.begin(), count = pages.end() - first;
    cuda::copy_to_device(memory_->cache.page_table.as<int32_t>() + at + from, &*first,
                         static_cast<uint64_t>(count) * sizeof(int32_t), stream_.get());
    std::copy(first, pages.end(), differs);
  }
}

// Tokens, positions and sequences of the batch to where recorded steps read them.
void CudaExecutor::stage() {
  Slot& slot = slots_[next_slot_];
  next_slot_ = 1 - next_slot_;
  slot.sent.wait();
  auto* host = slot.staged.as<int32_t>();
  std::copy(batch_.tokens.begin(), batch_.tokens.end(), host);
  int64_t row = 0;
  for (const Run& run : batch_.runs) {
    for (int64_t i = 0; i < run.rows; ++i, ++row) {
      host[memory_->max_rows + row] = static_cast<int32_t>(run.position + i);
      host[2 * memory_->max_rows + row] = static_cast<int32_t>(run.sequence);
    }
  }
  std::copy(wanted_.begin(), wanted_.end(), host + 3 * memory_->max_rows);
  auto* device = memory_->staged.as<int32_t>();
  if (m_ > kFewRows) {
    cuda::copy_to_device(device, host, slot.staged.bytes(), stream_.get());
  } else {
    for (int64_t array = 0; array < CudaMemory::kStaged; ++array) {
      cuda::copy_to_device(device + array * memory_->max_rows, host + array * memory_->max_rows,
                           static_cast<uint64_t>(m_) * sizeof(int32_t), stream_.get());
    }
  }
  slot.sent.record(stream_.get());
  if (std::find(batch_.tokens.begin(), batch_.tokens.end(), kChosenToken) != batch_.tokens.end())
    cuda::take_chosen(staged(0), staged(2), memory_->next.as<int32_t>(), m_, stream_.get());
}

int64_t CudaExecutor::max_prompts() const {
  return memory_->cache.coded ? CudaCodedCache::max_prompts(shape_) : memory_->max_rows;
}

void CudaExecutor::copy_pages(std::span<const PageCopy> copies) {
  cuda::select_device(model_.device.index);
  const auto each = static_cast<int32_t>(pages_.shape().page_positions / shape_.page_positions);
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

void CudaExecutor::embed() {
  cuda::embed(embedding_, staged(0), m_, row(Rows::stream, 0, 0), model_.config.hidden,
              model_.config.embedding_scale, stream_.get());
}

// Row `index` of rows that are `stride` floats apart.
float* CudaExecutor::row(Rows which, int64_t index, int64_t stride) const {
  return memory_->rows[static_cast<size_t>(which)].as<float>() + index * stride;
}

// The residual stream and what attention makes of it keep their places; what a block computes
// besides begins at the first row of its buffers.
CudaExecutor::Multiplication CudaExecutor::multiplication(const ForwardOp& op, int64_t skip) const {
  const LayerDesc& desc = model_.config.layers[static_cast<size_t>(op.layer)];
  const Layer& layer = model_.layers[static_cast<size_t>(op.layer)];
  const ActivationDesc& activation = desc.activations[static_cast<size_t>(op.input)];
  const CudaMemory::Gains& gains = memory_->gains[static_cast<size_t>(op.layer)];
  Multiplication result;
  result.input = &layer.input(op.input);
  cuda::InputSource& source = result.source.rows;
  const AttentionDesc& a = desc.attention;
  source.width = source.ldx = activation.width;
  // Heads of latent attention become shorter where they are.
  if (op.from == Rows::mixed && a.latent.present()) source.ldx = a.query_width();
  source.x = row(op.from, op.from == Rows::gate ? 0 : skip, source.ldx);
  source.gain = floats(gains.inputs[static_cast<size_t>(op.input)]);
  source.eps = activation.norm.eps;
  if (op.from == Rows::gate) {
    source.up = row(Rows::up, 0, source.ldx);
    source.function = desc.mlp.function;
  }
  if (op.from == Rows::mixed) {
    const cuda::HeadGates gates = head_gates(desc, op.layer, skip);
    if (gates.present() && cuda::can_prepare(gates)) result.source.gates = gates;
  }
  for (const ForwardOp::Matmul& product : op.matmuls) {
    const Linear& linear = layer.matrix(product.matrix);
    const int64_t first = product.to == Rows::stream ? skip : 0;
    // Keys and values of a latent leave room for what place_heads adds to every head.
    const bool heads = product.to == Rows::key || product.to == Rows::value;
    const int64_t ld = heads ? std::max(linear.rows, a.kv_width()) : linear.rows;
    result.items.push_back({&linear, row(product.to, first, ld), ld, op.add});
  }
  return result;
}

CudaExecutor::Multiplication CudaExecutor::head_multiplication(const float* rows) const {
  const ModelConfig& c = model_.config;
  Multiplication result;
  result.input = &model_.head_input;
  cuda::InputSource& source = result.source.rows;
  source.x = rows;
  source.gain = floats(memory_->final_gain);
  source.eps = c.head_input.norm.eps;
  source.ldx = source.width = c.hidden;
  result.items.push_back({&model_.head, row(Rows::logits, 0, 0), c.vocab, false});
  return result;
}

// Rows of the stream whose logits are wanted, one behind the other; if they are not, they become
// the first rows of `gate`, which nothing reads any more.
const float* CudaExecutor::wanted_rows(int64_t first, int64_t rows) {
  const int64_t hidden = model_.config.hidden;
  const int32_t begin = wanted_[static_cast<size_t>(first)];
  if (wanted_[static_cast<size_t>(first + rows - 1)] == begin + rows - 1)
    return row(Rows::stream, begin, hidden);
  cuda::gather_rows(row(Rows::stream, 0, 0), hidden, staged(3) + first, rows, row(Rows::gate, 0, 0),
                    stream_.get());
  return row(Rows::gate, 0, 0);
}

void CudaExecutor::execute(const ForwardOp& op, int64_t skip) {
  switch (op.kind) {
    case ForwardOp::Kind::embed:
      return embed();
    case ForwardOp::Kind::multiply:
      return multiply(op, skip);
    case ForwardOp::Kind::place_heads:
      return place_heads(op);
    case ForwardOp::Kind::attend:
      return attend(op, skip);
    case ForwardOp::Kind::add_branch:
      return add_branch(op, skip);
    case ForwardOp::Kind::route:
      return route(op, skip);
    case ForwardOp::Kind::experts:
      return run_experts(op, skip);
    case ForwardOp::Kind::add_experts:
      return sum_experts(op, skip);
    case ForwardOp::Kind::convolve:
      return convolve(op);
    case ForwardOp::Kind::delta_rule:
      return apply_rule(op, skip);
    case ForwardOp::Kind::gate_mixed:
      return gate_mixed(op, skip);
  }
}

bool CudaExecutor::collect(const ForwardOp& op, cuda::PersistentProgram& program) const {
  switch (op.kind) {
    case ForwardOp::Kind::multiply: {
      if (is_part_of_experts(layer_of(op), op)) return true;
      Multiplication what = multiplication(op, 0);
      for (size_t i = op.matmuls.size(); i-- > 0;)
        if (is_part_of_delta(op.matmuls[i]))
          what.items.erase(what.items.begin() + static_cast<std::ptrdiff_t>(i));
      return memory_->linear.add_to(program, *what.input, what.source.rows, what.items);
    }
    case ForwardOp::Kind::place_heads:  // a part of attention
      return true;
    case ForwardOp::Kind::attend:
      return is_plain(attention_of(op)) && collect_attention(op, program);
    case ForwardOp::Kind::experts:
      return collect_experts(op, program);
    case ForwardOp::Kind::route:
    case ForwardOp::Kind::add_experts:
      return true;
    case ForwardOp::Kind::add_branch:  // the sum of experts has been added already
      return !op.after_attention && layer_of(op).experts.present();
    case ForwardOp::Kind::delta_rule:
      return collect_delta(op, program);
    case ForwardOp::Kind::convolve:    // a part of the delta rule
    case ForwardOp::Kind::gate_mixed:  // and of this, or of attention
      return true;
    case ForwardOp::Kind::embed:
      return false;
  }
  return false;
}

// The layers of one token as one launch, and its head as another one, where the device and the
// formats of the model allow it.
void CudaExecutor::build_programs() {
  if (!cuda::PersistentProgram::available() || memory_->cache.coded) return;
  // Between the layers of such a part others compute.
  for (const LayerDesc& layer : model_.config.layers)
    if (experts_elsewhere(layer)) return;
  m_ = 1;
  decoding_ = true;
  cuda::PersistentProgram layers;
  for (const ForwardOp& op : pass_.layers())
    if (!collect(op, layers)) return;
  if (!layers.finish()) return;
  layer_program_ = std::move(layers);
  cuda::PersistentProgram head;
  const Multiplication what = head_multiplication(row(Rows::stream, 0, 0));
  if (memory_->linear.add_to(head, *what.input, what.source.rows, what.items) && head.finish())
    head_program_ = std::move(head);
}

void CudaExecutor::add_branch(const ForwardOp& op, int64_t skip) {
  const LayerDesc& desc = model_.config.layers[static_cast<size_t>(op.layer)];
  // The sum of experts has been added already (sum_experts).
  if (!op.after_attention && desc.experts.present() && !desc.after_mlp.present()) return;
  const CudaMemory::Gains& gains = memory_->gains[static_cast<size_t>(op.layer)];
  const NormDesc& norm = op.after_attention ? desc.after_attention : desc.after_mlp;
  const int64_t hidden = model_.config.hidden;
  cuda::BranchCall call;
  call.branch = row(Rows::branch, 0, 0);
  call.gain = floats(op.after_attention ? gains.after_attention : gains.after_mlp);
  call.eps = norm.eps;
  call.scale = desc.branch_scale;
  call.x = row(Rows::stream, skip, hidden);
  call.m = m_ - skip;
  call.width = hidden;
  cuda::add_branch(call, stream_.get());
}

void CudaExecutor::logits(int64_t first, int64_t rows) {
  const ModelConfig& c = model_.config;
  if (decoding_ && m_ == 1 && !head_program_.empty()) {
    head_program_.launch(stream_.get());
  } else {
    const Multiplication what = head_multiplication(wanted_rows(first, rows));
    memory_->linear.multiply(*what.input, what.source, what.items, rows, stream_.get());
  }
  if (c.logit_scale != 1 || c.logit_cap != 0) {
    cuda::cap_logits(row(Rows::logits, 0, 0), rows, c.vocab, c.logit_scale, c.logit_cap,
                     stream_.get());
  }
  computed_logits_ = rows;
  logits_read_ = false;
}

std::span<const float> CudaExecutor::logit_row(int64_t index) {
  const int64_t vocab = model_.config.vocab;
  if (!logits_read_) {
    cuda::copy_to_host(host_logits_.as(), memory_->rows[static_cast<size_t>(Rows::logits)].as(),
                       static_cast<uint64_t>(computed_logits_ * vocab * kFloat), stream_.get());
    stream_.synchronize();
    logits_read_ = true;
  }
  return {host_logits_.as<float>() + index * vocab, static_cast<size_t>(vocab)};
}

std::unique_ptr<PartExecutor> make_cuda_executor(const Model& model, const KvPages& pages,
                                                 int64_t snapshots) {
  return std::make_unique<CudaExecutor>(model, pages, snapshots);
}

}  // namespace walsh
