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
                       int64_t first_logit, bool samples, FunctionRef<void()> steps) {
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
    execute(first_logit, samples, steps);
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

void CudaExecutor::execute(int64_t first_logit, bool samples, FunctionRef<void()> steps) {
  if (!decoding_ || m_ > cuda::kMaxVectors || first_logit != 0) {
    steps();
    return;
  }
  Recorded& step = recorded_[{m_, cuda::attention_reach(longest_), runs_[0].sequence, samples}];
  if (!step.warm) {  // every kernel and algorithm is loaded before it is recorded
    steps();
    step.warm = true;
    return;
  }
  cuda::Graph& graph = step.graph[submitted_ % kOpenBatches];
  if (graph.empty()) graph = cuda::Graph::record(stream_.get(), steps);
  if (samples) free_slot();
  graph.launch(stream_.get());
  computed_logits_ = m_;
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
  cuda::embed(embedding_, staged(0), m_, x_.as<float>(), model_.config.hidden, stream_.get());
}

cuda::InputSource CudaExecutor::source(const cuda::Buffer& x, int64_t width, int64_t row,
                                       const cuda::Buffer* gain) const {
  cuda::InputSource source;
  source.x = x.as<float>() + row * width;
  source.gain = gain != nullptr ? gain->as<float>() : nullptr;
  source.eps = model_.config.norm_eps;
  source.ldx = width;
  source.width = width;
  return source;
}

void CudaExecutor::multiply(const Input& input, const cuda::InputSource& from,
                            std::initializer_list<CudaItem> items, int64_t m) {
  if (collecting_ != nullptr) {
    collected_ = collected_ && sites_->add_to(*collecting_, input, from, items);
  } else {
    sites_->multiply(input, from, items, m, stream_.get());
  }
}

// The layers of one token as one launch, and its head as another one, where the device and the
// formats of the model allow it.
void CudaExecutor::build_step() {
  if (!cuda::StepProgram::available() || coded_) return;
  m_ = 1;
  decoding_ = true;
  collect(step_, [&] {
    for (int64_t layer = 0; layer < model_.config.layers && collected_; ++layer) {
      project(layer);
      attend(layer, 0);
      mlp(layer, 0);
    }
  });
  if (!step_.empty()) collect(head_step_, [&] { logits(0, 1); });
}

// A program of what `work` would launch, if there can be one.
void CudaExecutor::collect(cuda::StepProgram& into, FunctionRef<void()> work) {
  cuda::StepProgram program;
  collecting_ = &program;
  collected_ = true;
  work();
  collecting_ = nullptr;
  if (!collected_ || !program.finish()) return;
  into = std::move(program);
}

bool CudaExecutor::in_step() const {
  return decoding_ && m_ == 1 && collecting_ == nullptr && !step_.empty();
}

cuda::RopeCall CudaExecutor::rope_call(const LayerData& data) const {
  const ModelConfig& c = model_.config;
  cuda::RopeCall call;
  call.q = q_.as<float>();
  call.ldq = c.query_width();
  call.k = k_.as<float>();
  call.ldk = c.kv_width();
  call.v = v_.as<float>();
  call.ldv = c.kv_width();
  call.m = m_;
  call.heads = static_cast<int>(c.heads);
  call.q_norm = floats(data.q_norm);
  call.k_norm = floats(data.k_norm);
  call.eps = c.norm_eps;
  call.cos = cos_.as<float>();
  call.sin = sin_.as<float>();
  return call;
}

void CudaExecutor::project(int64_t index) {
  if (in_step()) {
    if (index == 0) step_.launch(stream_.get());
    return;
  }
  const ModelConfig& c = model_.config;
  const Layer& layer = model_.layers[static_cast<size_t>(index)];
  const LayerData& data = layers_[static_cast<size_t>(index)];
  multiply(layer.attention_input, source(x_, c.hidden, 0, &data.attention_gain),
           {{&layer.q, q_.as<float>(), c.query_width()},
            {&layer.k, k_.as<float>(), c.kv_width()},
            {&layer.v, v_.as<float>(), c.kv_width()}},
           m_);
  if (collecting_ != nullptr) return;
  if (coded_) {
    coded_->keep(index, rope_call(data), places(), stream_.get());
  } else {
    cuda::rope_and_store(rope_call(data), data.cache, table_, places(), stream_.get());
  }
}

// Of all rows of the batch.
cuda::AttentionRows CudaExecutor::attention_rows(const Layer& layer) const {
  const ModelConfig& c = model_.config;
  cuda::AttentionRows call;
  call.heads = static_cast<int>(c.heads);
  call.window = layer.window;
  call.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  call.ldq = call.ldo = c.query_width();
  call.rows = places();
  call.m = m_;
  call.q = q_.as<float>();
  call.out = attended_.as<float>();
  return call;
}

cuda::AttentionCall CudaExecutor::attention_call(const Layer& layer, const LayerData& data,
                                                 int64_t first, int64_t rows) const {
  return {attention_rows(layer).part(first, first + rows), &data.cache, table_};
}

void CudaExecutor::attend_all(const Layer& layer, const LayerData& data, int64_t skip) {
  if (collecting_ != nullptr) {
    collected_ =
        collected_ &&
        collecting_->attend(rope_call(data), attention_call(layer, data, 0, 1), attention_scratch_);
  } else if (decoding_) {
    for (int64_t row = skip; row < m_; row += cuda::kMaxVectors) {
      const int64_t rows = std::min(m_ - row, cuda::kMaxVectors);
      cuda::attend_rows(attention_call(layer, data, row, rows), longest_, attention_scratch_,
                        stream_.get());
    }
  } else {
    int64_t first = 0;
    for (const Run& run : runs_) {
      const int64_t begin = std::max(first, skip);
      first += run.rows;
      if (begin < first)
        cuda::attend_prompt(attention_call(layer, data, begin, first - begin), stream_.get());
    }
  }
}

void CudaExecutor::attend(int64_t index, int64_t skip) {
  if (in_step()) return;
  const ModelConfig& c = model_.config;
  const Layer& layer = model_.layers[static_cast<size_t>(index)];
  if (coded_) {
    coded_->attend(index, attention_rows(layer), skip, attention_scratch_, stream_.get());
  } else {
    attend_all(layer, layers_[static_cast<size_t>(index)], skip);
  }
  multiply(layer.o_input, source(attended_, c.query_width(), skip, nullptr),
           {{&layer.o, x_.as<float>() + skip * c.hidden, c.hidden, true}}, m_ - skip);
}

void CudaExecutor::mlp(int64_t index, int64_t skip) {
  if (in_step()) return;
  const ModelConfig& c = model_.config;
  const Layer& layer = model_.layers[static_cast<size_t>(index)];
  const LayerData& data = layers_[static_cast<size_t>(index)];
  const int64_t m = m_ - skip;
  multiply(layer.mlp_input, source(x_, c.hidden, skip, &data.mlp_gain),
           {{&layer.gate, gate_.as<float>(), c.intermediate},
            {&layer.up, up_.as<float>(), c.intermediate}},
           m);
  cuda::InputSource down = source(gate_, c.intermediate, 0, nullptr);
  down.up = up_.as<float>();
  multiply(layer.down_input, down,
           {{&layer.down, x_.as<float>() + skip * c.hidden, c.hidden, true}}, m);
}

void CudaExecutor::logits(int64_t row, int64_t rows) {
  const ModelConfig& c = model_.config;
  if (in_step() && !head_step_.empty()) {
    head_step_.launch(stream_.get());
  } else {
    multiply(model_.head_input, source(x_, c.hidden, row, &final_gain_),
             {{&model_.head, logits_.as<float>(), c.vocab}}, rows);
  }
  computed_logits_ = rows;
  logits_read_ = false;
}

std::span<const float> CudaExecutor::logit_row(int64_t index) {
  const int64_t vocab = model_.config.vocab;
  if (!logits_read_) {
    cuda::copy_to_host(host_logits_.as(), logits_.as(),
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
  call.logits = logits_.as<float>();
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
