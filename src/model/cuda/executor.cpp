#include "model/cuda/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "model/cuda/cuda_model.h"
#include "model/cuda/memory_plan.h"

namespace walsh {
namespace {

constexpr int64_t kFloat = sizeof(float);
// Up to here three small copies are less than one of the whole array.
constexpr int64_t kFewRows = 64;

const float* floats(const cuda::Buffer& buffer) {
  return buffer.empty() ? nullptr : buffer.as<float>();
}

}  // namespace

void CudaExecutor::run(std::span<const int32_t> tokens, std::span<const Run> runs,
                       int64_t first_logit, bool samples) {
  cuda::select_device(model_.device.index);
  runs_ = runs;
  m_ = longest_ = 0;
  decoding_ = true;
  for (const Run& run : runs) {
    m_ += run.rows;
    longest_ = std::max(longest_, run.position + run.rows);
    decoding_ = decoding_ && run.rows == 1;
  }
  const bool placed = is_placed(tokens);
  placed_.clear();
  computed_logits_ = 0;
  logits_read_ = false;
  if (coded_) coded_->start(runs, longest_, decoding_, stream_.get());
  try {
    if (!placed) stage(tokens);
    run_or_replay(first_logit, samples);
  } catch (...) {
    if (coded_) coded_->abandon();
    throw;
  }
  if (coded_) coded_->finish();
  if (samples) keep_chosen();
}

// Whether the batch is the one that the last one made (NextBatch).
bool CudaExecutor::is_placed(std::span<const int32_t> tokens) const {
  return tokens.empty() && std::equal(runs_.begin(), runs_.end(), placed_.begin(), placed_.end(),
                                      [](const Run& a, const Run& b) {
                                        return a.sequence == b.sequence &&
                                               a.position == b.position && a.rows == b.rows;
                                      });
}

void CudaExecutor::run_or_replay(int64_t first_logit, bool samples) {
  if (!decoding_ || m_ > cuda::kMaxVectors || first_logit != 0) {
    compute(first_logit, samples);
    return;
  }
  Recorded& step = recorded_[{m_, cuda::attention_reach(longest_), runs_[0].sequence, samples}];
  if (!step.warm) {  // every kernel and algorithm is loaded before it is recorded
    compute(first_logit, samples);
    step.warm = true;
    return;
  }
  cuda::Graph& graph = step.graph[submitted_ % kOpenBatches];
  if (graph.empty())
    graph = cuda::Graph::record(stream_.get(), [&] { compute(first_logit, samples); });
  if (samples) free_slot();
  graph.launch(stream_.get());
  computed_logits_ = m_;
}

// The forward pass: all layers as one launch where there is a program of them.
void CudaExecutor::compute(int64_t first_logit, bool samples) {
  embed();
  const bool one_launch = decoding_ && m_ == 1 && !step_.empty();
  if (one_launch) {
    step_.launch(stream_.get());
  } else {
    for (const ForwardOp& op : pass_.layers()) {
      const int64_t skip = pass_.only_wanted_rows(op) ? first_logit : 0;
      if (skip < m_) execute(op, skip);
    }
  }
  if (first_logit < m_) logits(first_logit, std::min(logit_rows_, m_ - first_logit));
  if (samples) sample(runs_[0].sequence);
}

// Tokens, positions and sequences of the batch to where recorded steps read them.
void CudaExecutor::stage(std::span<const int32_t> tokens) {
  Slot& slot = slots_[next_slot_];
  next_slot_ = 1 - next_slot_;
  slot.sent.wait();
  auto* host = slot.staged.as<int32_t>();
  std::copy(tokens.begin(), tokens.end(), host);
  int64_t row = 0;
  for (const Run& run : runs_) {
    for (int64_t i = 0; i < run.rows; ++i, ++row) {
      host[max_rows_ + row] = static_cast<int32_t>(run.position + i);
      host[2 * max_rows_ + row] = static_cast<int32_t>(run.sequence);
    }
  }
  auto* device = staged_.as<int32_t>();
  if (m_ > kFewRows) {
    cuda::copy_to_device(device, host, slot.staged.bytes(), stream_.get());
  } else {
    for (int64_t array = tokens.empty() ? 1 : 0; array < 3; ++array) {
      cuda::copy_to_device(device + array * max_rows_, host + array * max_rows_,
                           static_cast<uint64_t>(m_) * sizeof(int32_t), stream_.get());
    }
  }
  slot.sent.record(stream_.get());
  if (tokens.empty()) {
    cuda::copy_on_device(device, next_.as(), static_cast<uint64_t>(m_) * sizeof(int32_t),
                         stream_.get());
  }
}

void CudaExecutor::embed() {
  cuda::embed(embedding_, staged(0), m_, row(Rows::stream, 0, 0), model_.config.hidden,
              model_.config.embedding_scale, stream_.get());
}

// Row `index` of rows that are `stride` floats apart.
float* CudaExecutor::row(Rows which, int64_t index, int64_t stride) const {
  return rows_[static_cast<size_t>(which)].as<float>() + index * stride;
}

const AttentionDesc& CudaExecutor::attention_of(const ForwardOp& op) const {
  return model_.config.layers[static_cast<size_t>(op.layer)].attention;
}

// The residual stream and what attention makes of it keep their places; what a block computes
// besides begins at the first row of its buffers.
CudaExecutor::Multiplication CudaExecutor::multiplication(const ForwardOp& op, int64_t skip) const {
  const LayerDesc& desc = model_.config.layers[static_cast<size_t>(op.layer)];
  const Layer& layer = model_.layers[static_cast<size_t>(op.layer)];
  const ActivationDesc& activation = desc.activations[static_cast<size_t>(op.input)];
  const LayerData& data = layers_[static_cast<size_t>(op.layer)];
  Multiplication result;
  result.input = &layer.input(op.input);
  cuda::InputSource& source = result.source;
  source.width = source.ldx = activation.width;
  source.x = row(op.from, op.from == Rows::gate ? 0 : skip, source.ldx);
  source.gain = floats(data.gains[static_cast<size_t>(op.input)]);
  source.eps = activation.norm.eps;
  if (op.from == Rows::gate) {
    source.up = row(Rows::up, 0, source.ldx);
    source.function = desc.mlp.function;
  }
  for (const ForwardOp::Product& product : op.products) {
    const Linear& linear = layer.matrix(product.matrix);
    const int64_t first = product.to == Rows::stream ? skip : 0;
    result.items.push_back({&linear, row(product.to, first, linear.rows), linear.rows, op.add});
  }
  return result;
}

CudaExecutor::Multiplication CudaExecutor::head_multiplication(int64_t first) const {
  const ModelConfig& c = model_.config;
  Multiplication result;
  result.input = &model_.head_input;
  result.source.x = row(Rows::stream, first, c.hidden);
  result.source.gain = floats(final_gain_);
  result.source.eps = c.head_input.norm.eps;
  result.source.ldx = result.source.width = c.hidden;
  result.items.push_back({&model_.head, row(Rows::logits, 0, 0), c.vocab, false});
  return result;
}

void CudaExecutor::execute(const ForwardOp& op, int64_t skip) {
  switch (op.kind) {
    case ForwardOp::Kind::embed:
      return embed();
    case ForwardOp::Kind::multiply: {
      const Multiplication what = multiplication(op, skip);
      return sites_->multiply(*what.input, what.source, what.items, m_ - skip, stream_.get());
    }
    case ForwardOp::Kind::place_heads:
      return place_heads(op);
    case ForwardOp::Kind::attend:
      return attend(op, skip);
    case ForwardOp::Kind::add_branch:
      return add_branch(op, skip);
  }
}

bool CudaExecutor::collect(const ForwardOp& op, cuda::StepProgram& program) const {
  switch (op.kind) {
    case ForwardOp::Kind::multiply: {
      const Multiplication what = multiplication(op, 0);
      return sites_->add_to(program, *what.input, what.source, what.items);
    }
    case ForwardOp::Kind::place_heads:  // a part of attention
      return true;
    case ForwardOp::Kind::attend:
      return program.attend(rope_call(op), attention_call(op, 0, 1), attention_scratch_);
    case ForwardOp::Kind::embed:
    case ForwardOp::Kind::add_branch:
      return false;
  }
  return false;
}

// The layers of one token as one launch, and its head as another one, where the device and the
// formats of the model allow it.
void CudaExecutor::build_step() {
  if (!cuda::StepProgram::available() || coded_) return;
  m_ = 1;
  decoding_ = true;
  cuda::StepProgram layers;
  for (const ForwardOp& op : pass_.layers())
    if (!collect(op, layers)) return;
  if (!layers.finish()) return;
  step_ = std::move(layers);
  cuda::StepProgram head;
  const Multiplication what = head_multiplication(0);
  if (sites_->add_to(head, *what.input, what.source, what.items) && head.finish())
    head_step_ = std::move(head);
}

cuda::RopeCall CudaExecutor::rope_call(const ForwardOp& op) const {
  const AttentionDesc& a = attention_of(op);
  const LayerData& data = layers_[static_cast<size_t>(op.layer)];
  cuda::RopeCall call;
  call.q = row(Rows::query, 0, 0);
  call.ldq = a.query_width();
  call.k = row(Rows::key, 0, 0);
  call.ldk = a.kv_width();
  call.v = row(Rows::value, 0, 0);
  call.ldv = a.kv_width();
  call.m = m_;
  call.heads = static_cast<int>(a.heads);
  call.q_norm = floats(data.q_norm);
  call.k_norm = floats(data.k_norm);
  call.eps = a.q_norm.eps;
  if (a.rope < 0) return call;
  const Rope& rope = ropes_[static_cast<size_t>(a.rope)];
  call.rotated = 2 * rope.pairs;
  call.cos = rope.cos.as<float>();
  call.sin = rope.sin.as<float>();
  return call;
}

void CudaExecutor::place_heads(const ForwardOp& op) {
  if (coded_) {
    coded_->keep(op.layer, rope_call(op), places(), stream_.get());
  } else {
    cuda::rope_and_store(rope_call(op), layers_[static_cast<size_t>(op.layer)].cache, table_,
                         places(), stream_.get());
  }
}

// Of all rows of the batch.
cuda::AttentionRows CudaExecutor::attention_rows(const ForwardOp& op) const {
  const AttentionDesc& a = attention_of(op);
  cuda::AttentionRows call;
  call.heads = static_cast<int>(a.heads);
  call.window = a.window;
  call.scale = a.scale;
  call.logit_cap = a.logit_cap;
  call.ldq = call.ldo = a.query_width();
  call.rows = places();
  call.m = m_;
  call.q = row(Rows::query, 0, 0);
  call.out = row(Rows::attended, 0, 0);
  return call;
}

cuda::AttentionCall CudaExecutor::attention_call(const ForwardOp& op, int64_t first,
                                                 int64_t rows) const {
  return {attention_rows(op).part(first, first + rows),
          &layers_[static_cast<size_t>(op.layer)].cache, table_};
}

void CudaExecutor::attend(const ForwardOp& op, int64_t skip) {
  if (coded_) {
    coded_->attend(op.layer, attention_rows(op), skip, attention_scratch_, stream_.get());
    return;
  }
  if (decoding_) {
    for (int64_t row = skip; row < m_; row += cuda::kMaxVectors) {
      const int64_t rows = std::min(m_ - row, cuda::kMaxVectors);
      cuda::attend_rows(attention_call(op, row, rows), longest_, attention_scratch_, stream_.get());
    }
    return;
  }
  int64_t first = 0;
  for (const Run& run : runs_) {
    const int64_t begin = std::max(first, skip);
    first += run.rows;
    if (begin < first) cuda::attend_prompt(attention_call(op, begin, first - begin), stream_.get());
  }
}

void CudaExecutor::add_branch(const ForwardOp& op, int64_t skip) {
  const LayerDesc& desc = model_.config.layers[static_cast<size_t>(op.layer)];
  const LayerData& data = layers_[static_cast<size_t>(op.layer)];
  const NormDesc& norm = op.after_attention ? desc.after_attention : desc.after_mlp;
  const int64_t hidden = model_.config.hidden;
  cuda::BranchCall call;
  call.branch = row(Rows::branch, 0, 0);
  call.gain = floats(op.after_attention ? data.after_attention : data.after_mlp);
  call.eps = norm.eps;
  call.scale = desc.branch_scale;
  call.x = row(Rows::stream, skip, hidden);
  call.m = m_ - skip;
  call.width = hidden;
  cuda::add_branch(call, stream_.get());
}

void CudaExecutor::logits(int64_t first, int64_t rows) {
  const ModelConfig& c = model_.config;
  if (decoding_ && m_ == 1 && !head_step_.empty()) {
    head_step_.launch(stream_.get());
  } else {
    const Multiplication what = head_multiplication(first);
    sites_->multiply(*what.input, what.source, what.items, rows, stream_.get());
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
    cuda::copy_to_host(host_logits_.as(), rows_[static_cast<size_t>(Rows::logits)].as(),
                       static_cast<uint64_t>(computed_logits_ * vocab * kFloat), stream_.get());
    stream_.synchronize();
    logits_read_ = true;
  }
  return {host_logits_.as<float>() + index * vocab, static_cast<size_t>(vocab)};
}

bool CudaExecutor::can_sample() const {
  return model_.config.vocab <= cuda::kMaxSampledVocab;
}

void CudaExecutor::start_sampling(int64_t sequence, const SamplerOptions& options,
                                  std::span<const int32_t> history) {
  const cuda::SampleOptions wanted = {options.temperature,    options.top_k,
                                      options.top_p,          options.min_p,
                                      options.repeat_penalty, options.repeat_last_n};
  if (!(wanted == sample_options_)) recorded_.clear();
  sample_options_ = wanted;
  stream_.synchronize();
  // The history is only kept where a penalty reads it; it holds what the context can.
  const auto count =
      static_cast<int32_t>(std::min<size_t>(history.size(), static_cast<size_t>(positions_)));
  const auto recent = history.last(static_cast<size_t>(count));
  cuda::copy_to_device(random_.as<uint64_t>() + sequence, &options.seed, sizeof(uint64_t),
                       stream_.get());
  cuda::copy_to_device(history_lengths_.as<int32_t>() + sequence, &count, sizeof count,
                       stream_.get());
  cuda::copy_to_device(history_.as<int32_t>() + sequence * history_stride(), recent.data(),
                       recent.size_bytes(), stream_.get());
  stream_.synchronize();
}

void CudaExecutor::sample(int64_t first) {
  cuda::SampleCall call;
  call.logits = row(Rows::logits, 0, 0);
  call.ldl = call.vocab = model_.config.vocab;
  call.m = computed_logits_;
  call.state.random = random_.as<uint64_t>() + first;
  call.state.history_stride = history_stride();
  if (sample_options_.repeat_penalty != 1)  // nothing else reads the history
    call.state.history = history_.as<int32_t>() + first * history_stride();
  call.state.lengths = history_lengths_.as<int32_t>() + first;
  call.next = next_.as<int32_t>();
  call.host = free_slot().chosen.as<int32_t>();
  call.batch = {staged(0), staged(1), staged(2), m_ - computed_logits_};
  cuda::sample(call, sample_options_, sample_scratch_, stream_.get());
}

// Where the host finds the tokens that are chosen next.
CudaExecutor::Slot& CudaExecutor::free_slot() {
  if (submitted_ - taken_ == kOpenBatches) {
    throw Error(ErrorCode::internal, "sampling", "tokens of earlier batches were not taken");
  }
  return slots_[submitted_ % kOpenBatches];
}

// What was chosen is the host's behind the step, and the next batch.
void CudaExecutor::keep_chosen() {
  Slot& slot = slots_[submitted_++ % kOpenBatches];
  slot.count = static_cast<size_t>(computed_logits_);
  slot.done.record(stream_.get());
  for (const Run& run : runs_)
    placed_.push_back({run.sequence, run.position + run.rows, 1});
}

std::span<const int32_t> CudaExecutor::sampled() {
  if (submitted_ == taken_) throw Error(ErrorCode::internal, "sampling", "no batch is open");
  Slot& slot = slots_[taken_++ % kOpenBatches];
  slot.done.wait();
  return {slot.chosen.as<int32_t>(), slot.count};
}

std::unique_ptr<Executor> make_cuda_executor(const Model& model, int64_t positions,
                                             const SessionOptions& options) {
  return std::make_unique<CudaExecutor>(model, positions, options);
}

}  // namespace walsh
