// Work is split over threads by rows of weights for products, by tokens for everything else; a
// result never depends on the split.
#include "model/cpu/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "model/rope.h"

namespace walsh {
namespace {

// Tokens evaluated together: enough to pay for decoding the weights, few enough that their
// activations stay in the second-level cache.
constexpr int64_t kMaxRows = 256;
// Floats of logits computed together: a row of any vocabulary, many rows of a small one.
constexpr int64_t kLogitFloats = int64_t{1} << 22;
constexpr int64_t kRowAlignment = 16;  // floats: 64 bytes

size_t rows_of(int64_t rows, int64_t stride) {
  return static_cast<size_t>(rows * stride);
}

uint64_t workspace_bytes(const std::vector<BufferShape>& shapes, int64_t rows) {
  uint64_t sum = 0;
  for (const BufferShape& shape : shapes)
    sum += rows_of(rows, shape.cols) * (shape.planes > 0 ? static_cast<size_t>(shape.planes) : 4);
  return sum;
}

void check_limit(uint64_t bytes, uint64_t limit) {
  if (bytes <= limit) return;
  throw Error(ErrorCode::limit, "workspaces of the forward pass",
              fmt::format("{} MiB needed, the limit leaves {} MiB", bytes >> 20, limit >> 20));
}

// Pieces per thread and product when several tokens are evaluated: evens out unequal cores.
constexpr int64_t kPiecesPerThread = 8;

int64_t units_of(const Linear& linear) {
  return (linear.rows + kPanelRows - 1) / kPanelRows;
}

}  // namespace

CpuExecutor::CpuExecutor(const Model& model, int64_t positions, const SessionOptions& options)
    : model_(model),
      ops_(ops()),
      max_rows_(std::min(kMaxRows, std::max(positions, options.sequences))),
      logit_rows_(std::clamp(kLogitFloats / model.config.vocab, int64_t{1}, max_rows_)),
      positions_(static_cast<size_t>(max_rows_)),
      x_stride_(round_up(model.config.hidden, kRowAlignment)),
      q_stride_(round_up(model.config.query_width(), kRowAlignment)),
      kv_stride_(round_up(model.config.kv_width(), kRowAlignment)),
      mlp_stride_(round_up(model.config.intermediate, kRowAlignment)),
      logits_stride_(round_up(model.config.vocab, kRowAlignment)),
      cache_(make_kv_cache(model, positions, max_rows_, options)),
      frequencies_(rope_frequencies(model.config.rope, model.config.head_dim)) {
  allocate(positions, options.max_bytes - cache_->bytes());
}

void CpuExecutor::allocate(int64_t positions, uint64_t max_bytes) {
  const int64_t floats_per_row = 2 * (x_stride_ + q_stride_ + kv_stride_ + mlp_stride_);
  check_limit(workspace_bytes(model_.buffers, max_rows_) +
                  sizeof(float) *
                      (rows_of(max_rows_, floats_per_row) + rows_of(logit_rows_, logits_stride_)),
              max_bytes);
  for (AlignedArray<float>* rows : {&x_, &branch_})
    *rows = AlignedArray<float>(rows_of(max_rows_, x_stride_));
  for (AlignedArray<float>* rows : {&q_, &attended_})
    *rows = AlignedArray<float>(rows_of(max_rows_, q_stride_));
  for (AlignedArray<float>* rows : {&k_, &v_})
    *rows = AlignedArray<float>(rows_of(max_rows_, kv_stride_));
  for (AlignedArray<float>* rows : {&gate_, &up_})
    *rows = AlignedArray<float>(rows_of(max_rows_, mlp_stride_));
  logits_ = AlignedArray<float>(rows_of(logit_rows_, logits_stride_));
  for (AlignedArray<float>* rows : {&cos_, &sin_})
    *rows = AlignedArray<float>(rows_of(max_rows_, model_.config.head_dim / 2));

  int64_t scratch =
      std::max(model_.embedding_scratch(),
               attention_scratch(max_rows_, positions, static_cast<int>(model_.config.head_dim)));
  for (const BufferShape& shape : model_.buffers) {
    Workspace workspace;
    if (shape.planes > 0) {
      workspace.quantized = ActivationsI8(max_rows_, shape.cols, shape.group, shape.planes);
      scratch = std::max(scratch, shape.cols);
    } else {
      workspace.stride = round_up(shape.cols, kRowAlignment);
      workspace.rows = AlignedArray<float>(rows_of(max_rows_, workspace.stride));
    }
    workspaces_.push_back(std::move(workspace));
  }
  for (int t = 0; t < model_.pool().size(); ++t)
    scratch_.emplace_back(static_cast<size_t>(scratch));
}

// Calls body(row, scratch) for each row; a single one stays on this thread.
template <typename Body>
void CpuExecutor::for_rows(int64_t m, Body&& body) {
  if (m == 1) {
    body(int64_t{0}, scratch_[0].data());
    return;
  }
  model_.pool().run([&](int thread, int threads) {
    const auto [begin, end] = ThreadPool::range_of(m, 1, thread, threads);
    for (int64_t row = begin; row < end; ++row)
      body(row, scratch_[static_cast<size_t>(thread)].data());
  });
}

void CpuExecutor::run(std::span<const int32_t> tokens, std::span<const Run> runs, int64_t, bool,
                      FunctionRef<void()> steps) {
  tokens_ = tokens;
  runs_ = runs;
  m_ = 0;
  for (const Run& run : runs)
    for (int64_t i = 0; i < run.rows; ++i)
      positions_[static_cast<size_t>(m_++)] = run.position + i;
  cache_->start(runs);
  try {
    steps();
  } catch (...) {
    cache_->abandon();
    throw;
  }
  cache_->finish();
}

void CpuExecutor::embed() {
  const int64_t half = model_.config.head_dim / 2;
  for_rows(m_, [&](int64_t row, float* scratch) {
    model_.embed(tokens_[static_cast<size_t>(row)], x_.data() + row * x_stride_, scratch);
    // Angles in float32, as the reference implementations have them.
    const auto position = static_cast<float>(positions_[static_cast<size_t>(row)]);
    for (int64_t i = 0; i < half; ++i) {
      const float angle = position * frequencies_[static_cast<size_t>(i)];
      cos_[static_cast<size_t>(row * half + i)] = std::cos(angle);
      sin_[static_cast<size_t>(row * half + i)] = std::sin(angle);
    }
  });
}

void CpuExecutor::project(int64_t index) {
  const Layer& layer = model_.layers[static_cast<size_t>(index)];
  prepare(layer.attention_input, x_.data(), x_stride_, m_);
  multiply({{&layer.q, &layer.attention_input, q_.data(), q_stride_},
            {&layer.k, &layer.attention_input, k_.data(), kv_stride_},
            {&layer.v, &layer.attention_input, v_.data(), kv_stride_}},
           m_);
  place_heads(layer);
  cache_->store(index, k_.data(), v_.data(), kv_stride_);
}

void CpuExecutor::attend(int64_t index, int64_t skip) {
  const Layer& layer = model_.layers[static_cast<size_t>(index)];
  int64_t first = 0;
  for (size_t run = 0; run < runs_.size(); ++run) {
    if (first + runs_[run].rows > skip) attend_run(index, run, first, skip);
    first += runs_[run].rows;
  }
  prepare(layer.o_input, attended_.data(), q_stride_, m_ - skip);
  multiply({{&layer.o, &layer.o_input, branch_.data(), x_stride_}}, m_ - skip);
  add_rows(branch_.data(), m_ - skip, x_.data() + skip * x_stride_);
}

void CpuExecutor::mlp(int64_t index, int64_t skip) {
  const Layer& layer = model_.layers[static_cast<size_t>(index)];
  const int64_t width = model_.config.intermediate;
  const int64_t m = m_ - skip;
  float* x = x_.data() + skip * x_stride_;
  prepare(layer.mlp_input, x, x_stride_, m);
  multiply({{&layer.gate, &layer.mlp_input, gate_.data(), mlp_stride_},
            {&layer.up, &layer.mlp_input, up_.data(), mlp_stride_}},
           m);
  for_rows(m, [&](int64_t row, float* scratch) {
    float* gate = gate_.data() + row * mlp_stride_;
    ops_.silu_mul(gate, up_.data() + row * mlp_stride_, width, gate);
    prepare_row(layer.down_input, gate, row, scratch);
  });
  tell(layer.down_input, m);
  multiply({{&layer.down, &layer.down_input, branch_.data(), x_stride_}}, m);
  add_rows(branch_.data(), m, x);
}

std::span<float> CpuExecutor::hidden(int64_t row) {
  return {x_.data() + row * x_stride_, static_cast<size_t>(model_.config.hidden)};
}

void CpuExecutor::prepare_head(int64_t row, int64_t rows) {
  prepare(model_.head_input, x_.data() + row * x_stride_, x_stride_, rows);
}

void CpuExecutor::logits(int64_t row, int64_t rows) {
  prepare_head(row, rows);
  multiply({{&model_.head, &model_.head_input, logits_.data(), logits_stride_}}, rows);
}

std::span<const float> CpuExecutor::logit_row(int64_t index) {
  return {logits_.data() + index * logits_stride_, static_cast<size_t>(model_.config.vocab)};
}

void CpuExecutor::prepare(const Input& input, const float* x, int64_t ldx, int64_t m) {
  for_rows(m,
           [&](int64_t row, float* scratch) { prepare_row(input, x + row * ldx, row, scratch); });
  tell(input, m);
}

void CpuExecutor::tell(const Input& input, int64_t m) const {
  if (!observer_) return;
  for (const PreparedInput& form : input.forms) {
    if (form.planes > 0 || form.transform.rotator != nullptr) continue;
    const Workspace& rows = workspaces_[static_cast<size_t>(form.buffer)];
    observer_(input, rows.rows.data(), rows.stride, m);
    return;
  }
}

void CpuExecutor::prepare_row(const Input& input, const float* x, int64_t row, float* scratch) {
  const float* gain = input.gain.empty() ? nullptr : input.gain.data();
  const float eps = model_.config.norm_eps;
  for (const PreparedInput& form : input.forms) {
    Workspace& to = workspaces_[static_cast<size_t>(form.buffer)];
    if (form.planes > 0) {
      prepare_input(ops_, form.transform, x, gain, eps, scratch, &to.quantized, row);
    } else {
      prepare_input(ops_, form.transform, x, gain, eps, to.rows.data() + row * to.stride, nullptr,
                    row);
    }
  }
}

// The products of one dispatch, their panels numbered through.
void CpuExecutor::multiply(std::initializer_list<Product> products, int64_t m) {
  int64_t units = 0;
  for (const Product& product : products)
    units += units_of(*product.linear);
  const auto run_units = [&](int64_t begin, int64_t end) {
    int64_t first = 0;
    for (const Product& product : products) {
      const int64_t count = units_of(*product.linear);
      const int64_t from = std::max(begin, first), to = std::min(end, first + count);
      if (from < to) multiply_units(product, from - first, to - first, m);
      first += count;
    }
  };
  ThreadPool& pool = model_.pool();
  if (m == 1) {  // each thread reads one contiguous piece of memory
    pool.for_ranges(units, 1, run_units);
  } else {
    const int64_t pieces = std::min(units, pool.size() * kPiecesPerThread);
    pool.for_each(pieces, [&](int64_t piece) {
      run_units(units * piece / pieces, units * (piece + 1) / pieces);
    });
  }
  for (const Product& product : products)
    rotate_back(product, m);
}

void CpuExecutor::multiply_units(const Product& product, int64_t begin, int64_t end, int64_t m) {
  const Linear& linear = *product.linear;
  const int64_t row_begin = begin * kPanelRows;
  const int64_t row_end = std::min(end * kPanelRows, linear.rows);
  const auto input = [&](size_t pass) -> const Workspace& {
    const auto form = static_cast<size_t>(linear.input[pass]);
    return workspaces_[static_cast<size_t>(product.input->forms[form].buffer)];
  };
  if (linear.is_dense()) {
    const Workspace& x = input(0);
    ops_.matmul_dense(linear.format->dtype, linear.dense.data.data(), linear.cols, x.rows.data(),
                      x.stride, m, product.y, product.ldy, row_begin, row_end);
  }
  for (size_t pass = 0; pass < linear.passes.size(); ++pass) {
    const Workspace& x = input(pass);
    const PanelMatrix& w = linear.passes[pass];
    if (x.quantized.q.empty()) {
      ops_.matmul_f32(w, x.rows.data(), x.stride, m, product.y, product.ldy, begin, end, pass > 0);
    } else {
      const bool by_lookup = w.product && model_.activations == ActivationMode::lut;
      const auto matmul = by_lookup ? ops_.matmul_lookup : ops_.matmul_i8;
      matmul(w, x.quantized, m, product.y, product.ldy, begin, end, pass > 0);
    }
  }
  if (linear.output == nullptr) add_bias(product, row_begin, row_end, 0, m);
}

void CpuExecutor::add_bias(const Product& product, int64_t row_begin, int64_t row_end,
                           int64_t begin, int64_t end) {
  const std::vector<float>& bias = product.linear->bias;
  if (bias.empty()) return;
  for (int64_t t = begin; t < end; ++t) {
    float* y = product.y + t * product.ldy;
    for (int64_t row = row_begin; row < row_end; ++row)
      y[row] += bias[static_cast<size_t>(row)];
  }
}

void CpuExecutor::rotate_back(const Product& product, int64_t m) {
  const Linear& linear = *product.linear;
  if (linear.output == nullptr) return;
  for_rows(m, [&](int64_t row, float*) {
    linear.output->invert(product.y + row * product.ldy);
    add_bias(product, 0, linear.rows, row, row + 1);
  });
}

// Norms and rotates queries and keys.
void CpuExecutor::place_heads(const Layer& layer) {
  const ModelConfig& c = model_.config;
  const int head_dim = static_cast<int>(c.head_dim);
  const auto normalize = [&](float* x, int64_t heads, const std::vector<float>& gain) {
    if (gain.empty()) return;
    for (int64_t h = 0; h < heads; ++h)
      ops_.rms_norm(x + h * head_dim, gain.data(), head_dim, c.norm_eps, x + h * head_dim);
  };
  for_rows(m_, [&](int64_t row, float*) {
    float* q = q_.data() + row * q_stride_;
    float* k = k_.data() + row * kv_stride_;
    const float* cos = cos_.data() + row * (head_dim / 2);
    const float* sin = sin_.data() + row * (head_dim / 2);
    normalize(q, c.heads, layer.q_norm);
    normalize(k, c.kv_heads, layer.k_norm);
    ops_.rope(q, static_cast<int>(c.heads), head_dim, cos, sin);
    ops_.rope(k, static_cast<int>(c.kv_heads), head_dim, cos, sin);
  });
}

// Queries of run `index`, which begins at row `first` of the batch, to the rows of attended_, of
// which the first is row `skip` of the batch.
void CpuExecutor::attend_run(int64_t layer, size_t index, int64_t first, int64_t skip) {
  const ModelConfig& c = model_.config;
  const int64_t group = c.heads / c.kv_heads;
  const int64_t queries = std::max<int64_t>(1, kAttentionRows / group);
  const int64_t begin = std::max(first, skip), end = first + runs_[index].rows;
  const int64_t blocks = (end - begin + queries - 1) / queries;
  const int64_t window = model_.layers[static_cast<size_t>(layer)].window;
  model_.pool().for_each(blocks * c.kv_heads, [&](int64_t i, int thread) {
    const int64_t head = i % c.kv_heads;
    const int64_t row = begin + i / c.kv_heads * queries;
    const int64_t column = head * group * c.head_dim;
    const QueryRows rows = {index,
                            row - first,
                            std::min(queries, end - row),
                            head,
                            q_.data() + row * q_stride_ + column,
                            q_stride_,
                            attended_.data() + (row - skip) * q_stride_ + column,
                            q_stride_};
    cache_->attend(layer, window, rows, thread, scratch_[static_cast<size_t>(thread)].data());
  });
}

void CpuExecutor::add_rows(const float* branch, int64_t m, float* x) {
  const int64_t width = model_.config.hidden;
  for_rows(m, [&](int64_t row, float*) {
    const float* from = branch + row * x_stride_;
    float* to = x + row * x_stride_;
    for (int64_t i = 0; i < width; ++i)
      to[i] += from[i];
  });
}

}  // namespace walsh
