// Work is split over threads by rows of weights for products, by tokens for everything else; a
// result never depends on the split.
#include "model/cpu/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/checked.h"

namespace walsh {
namespace {

// Floats of logits computed together: a row of any vocabulary, many rows of a small one.
constexpr int64_t kLogitFloats = int64_t{1} << 22;

void check_limit(uint64_t bytes, uint64_t limit) {
  if (bytes <= limit) return;
  throw Error(ErrorCode::limit, "workspaces of the forward pass",
              fmt::format("{} MiB of memory are needed, but only {} MiB are allowed", bytes >> 20,
                          limit >> 20));
}

// Pieces per thread and product when several tokens are evaluated: evens out unequal cores.
constexpr int64_t kPiecesPerThread = 8;

int64_t units_of(const Linear& linear) {
  return (linear.rows + kPanelRows - 1) / kPanelRows;
}

}  // namespace

CpuExecutor::CpuExecutor(const Model& model, const KvPages& pages, uint64_t max_bytes,
                         int64_t snapshots)
    : model_(model),
      ops_(ops()),
      // Enough to pay for decoding the weights, few enough that their activations stay in the
      // second-level cache.
      max_rows_(std::min(kCpuRows, std::max(pages.shape().capacity, pages.shape().sequences))),
      logit_rows_(std::clamp(kLogitFloats / model.config.vocab, int64_t{1}, max_rows_)),
      positions_(static_cast<size_t>(max_rows_)),
      pass_(model.config),
      cache_(make_kv_cache(model, pages, max_rows_, max_bytes)),
      delta_net_(model, pages.shape().sequences + snapshots, max_bytes - cache_->bytes()) {
  allocate(pages.shape().capacity, max_bytes - cache_->bytes() - delta_net_.bytes());
}

void CpuExecutor::allocate(int64_t positions, uint64_t max_bytes) {
  const ModelConfig& c = model_.config;
  const LayerWidths w = widest(c);
  std::array<int64_t, kRowKinds> widths = row_widths(c);
  if (!model_.has_head()) widths[static_cast<size_t>(Rows::logits)] = 0;
  const auto count = [&](size_t i) {
    return static_cast<Rows>(i) == Rows::logits ? logit_rows_ : max_rows_;
  };
  uint64_t bytes = expert_bytes(model_, max_rows_);
  for (size_t i = 0; i < rows_.size(); ++i)
    bytes += RowBuffer::bytes(count(i), widths[i]);
  for (const BufferShape& shape : model_.buffers)
    bytes += Workspace::bytes(shape, max_rows_);
  check_limit(bytes, max_bytes);
  for (size_t i = 0; i < rows_.size(); ++i)
    rows_[i] = RowBuffer(count(i), widths[i]);
  for (const RopeConfig& config : c.ropes) {
    Rope& rope = ropes_.emplace_back();
    rope.table = rope_table(config, w.head_dim, positions);
    rope.cos = AlignedArray<float>(static_cast<size_t>(max_rows_ * rope.pairs()));
    rope.sin = AlignedArray<float>(static_cast<size_t>(max_rows_ * rope.pairs()));
    if (config.query_beta != 0) rope.query = AlignedArray<float>(static_cast<size_t>(max_rows_));
  }
  ones_.assign(static_cast<size_t>(w.head_dim), 1.0f);
  int64_t scratch = std::max(model_.embedding_scratch(),
                             attention_scratch(max_rows_, positions, static_cast<int>(w.head_dim)));
  for (const BufferShape& shape : model_.buffers) {
    workspaces_.emplace_back(shape, max_rows_);
    scratch = std::max(scratch, shape.cols);
  }
  allocate_experts();
  for (int t = 0; t < model_.pool().size(); ++t) {
    scratch_.emplace_back(static_cast<size_t>(scratch));
    log_sums_.emplace_back(static_cast<size_t>(std::max(kAttentionRows, w.heads)));
  }
}

void CpuExecutor::for_rows(int64_t m, FunctionRef<void(int64_t row, float* scratch)> body) {
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

void CpuExecutor::run_parts(const Batch& batch, FunctionRef<void()> body) {
  tokens_ = batch.tokens;
  runs_ = batch.runs;
  m_ = 0;
  wanted_.clear();
  for (const Run& run : runs_) {
    for (int64_t i = 0; i < run.rows; ++i) {
      if (i >= run.rows - run.logits) wanted_.push_back(m_);
      positions_[static_cast<size_t>(m_++)] = run.position + i;
    }
  }
  find_angles();
  delta_net_.start(runs_, batch.marks);
  cache_->start(runs_);
  try {
    body();
  } catch (...) {
    cache_->abandon();
    throw;
  }
  cache_->finish();
}

void CpuExecutor::run(const Batch& batch) {
  run_parts(batch, [&] {
    embed();
    run_layers(0, static_cast<int64_t>(model_.layers.size()));
    const auto count = static_cast<int64_t>(wanted_.size());
    if (count > 0) logits(0, std::min(logit_rows_, count));
  });
}

void CpuExecutor::run_layers(int64_t begin, int64_t end) {
  const int64_t first = wanted_.empty() ? m_ : wanted_.front();
  for (int64_t layer = begin; layer < end; ++layer) {
    for (const ForwardOp& op : pass_.layer(layer)) {
      const int64_t skip = pass_.only_wanted_rows(op) ? first : 0;
      if (skip < m_ || op.kind == ForwardOp::Kind::delta_rule) execute(op, skip);
    }
  }
}

void CpuExecutor::read_rows(Rows which, int64_t first, int64_t count, float* to) {
  const int64_t width = model_.config.hidden;
  for (int64_t i = 0; i < count; ++i)
    std::copy_n(rows(which).row(first + i), width, to + i * width);
}

void CpuExecutor::write_rows(Rows which, int64_t first, int64_t count, const float* from) {
  const int64_t width = model_.config.hidden;
  for (int64_t i = 0; i < count; ++i)
    std::copy_n(from + i * width, width, rows(which).row(first + i));
}

void CpuExecutor::copy_pages(std::span<const PageCopy> copies) {
  for (const PageCopy& copy : copies)
    cache_->copy_page(copy);
}

void CpuExecutor::execute(const ForwardOp& op, int64_t skip) {
  switch (op.kind) {
    case ForwardOp::Kind::embed:
      return embed();
    case ForwardOp::Kind::multiply:
      return multiply(op, skip);
    case ForwardOp::Kind::place_heads:
      return place_heads(op.layer);
    case ForwardOp::Kind::attend:
      return attend(op.layer, skip);
    case ForwardOp::Kind::convolve:
      return delta_net_.convolve(op.layer, view(Rows::channels), view(Rows::decay),
                                 view(Rows::strength));
    case ForwardOp::Kind::delta_rule:
      return delta_net_.apply_rule(op.layer, view(Rows::channels), view(Rows::decay),
                                   view(Rows::strength), view(Rows::mixed), skip);
    case ForwardOp::Kind::gate_mixed:
      return gate_mixed(op, skip);
    case ForwardOp::Kind::add_branch:
      return add_branch(op, skip);
    case ForwardOp::Kind::route:
      return route(op, skip);
    case ForwardOp::Kind::experts:
      return run_experts(op);
    case ForwardOp::Kind::add_experts:
      return sum_experts(op, skip);
  }
}

void CpuExecutor::embed() {
  for_rows(m_, [&](int64_t row, float* scratch) {
    model_.embed(tokens_[static_cast<size_t>(row)], rows(Rows::stream).row(row), scratch);
  });
}

// The angles of the rows' positions in float32, as the reference implementations have them.
void CpuExecutor::find_angles() {
  for_rows(m_, [&](int64_t row, float*) {
    const int64_t at_row = positions_[static_cast<size_t>(row)];
    const auto position = static_cast<float>(at_row);
    for (size_t r = 0; r < ropes_.size(); ++r) {
      Rope& rope = ropes_[r];
      if (!rope.query.empty())
        rope.query[static_cast<size_t>(row)] = query_scale(model_.config.ropes[r], at_row);
      for (int64_t i = 0; i < rope.pairs(); ++i) {
        const float angle = position * rope.table.frequencies[static_cast<size_t>(i)];
        const auto at = static_cast<size_t>(row * rope.pairs() + i);
        rope.cos[at] = std::cos(angle) * rope.table.magnitude;
        rope.sin[at] = std::sin(angle) * rope.table.magnitude;
      }
    }
  });
}

// Rows of the batch from `skip` on. What a block computes begins at the first row of its buffers;
// the residual stream and what goes to the cache keep their places.
void CpuExecutor::multiply(const ForwardOp& op, int64_t skip) {
  const Layer& layer = model_.layers[static_cast<size_t>(op.layer)];
  const LayerDesc& desc = model_.config.layers[static_cast<size_t>(op.layer)];
  const Input& input = layer.input(op.input);
  const int64_t m = m_ - skip;
  if (op.from == Rows::gate) {
    prepare_gated(desc, input, m);
  } else {
    RowBuffer& from = rows(op.from);
    prepare(input, from.row(op.from == Rows::stream ? skip : 0), from.stride, m);
  }
  std::vector<Matmul> products;
  for (const ForwardOp::Matmul& product : op.matmuls) {
    RowBuffer& to = rows(op.add ? Rows::branch : product.to);
    products.push_back(
        {&layer.matrix(product.matrix), &input, to.row(0), to.stride, m, &workspaces_});
  }
  multiply(products);
  if (op.add) add_rows(rows(Rows::branch).row(0), 1, m, rows(Rows::stream).row(skip));
}

// The input of down: function(gate) * up.
void CpuExecutor::prepare_gated(const LayerDesc& desc, const Input& input, int64_t m) {
  for_rows(m, [&](int64_t row, float* scratch) {
    float* gate = rows(Rows::gate).row(row);
    gate_row(desc.mlp, gate, rows(Rows::up).row(row), desc.mlp.width);
    prepare_row(input, gate, row, scratch, workspaces_);
  });
  tell(input, m);
}

// gate = function(gate) * up; up may change.
void CpuExecutor::gate_row(const MlpDesc& mlp, float* gate, float* up, int64_t width) const {
  if (mlp.function == GateFunction::clamped_silu) {
    // silu(slope g) / slope is g / (1 + exp(-slope g)).
    for (int64_t i = 0; i < width; ++i) {
      gate[i] = mlp.slope * std::min(gate[i], mlp.limit);
      up[i] = (1 + std::clamp(up[i], -mlp.limit, mlp.limit)) / mlp.slope;
    }
  }
  const auto gate_mul = mlp.function == GateFunction::gelu_tanh ? ops_.gelu_mul : ops_.silu_mul;
  gate_mul(gate, up, width, gate);
}

void CpuExecutor::add_branch(const ForwardOp& op, int64_t skip) {
  const LayerDesc& desc = model_.config.layers[static_cast<size_t>(op.layer)];
  const Layer& layer = model_.layers[static_cast<size_t>(op.layer)];
  const NormDesc& norm = op.after_attention ? desc.after_attention : desc.after_mlp;
  const std::vector<float>& gain = op.after_attention ? layer.after_attention : layer.after_mlp;
  RowBuffer& branch = rows(Rows::branch);
  if (norm.present()) {
    for_rows(m_ - skip, [&](int64_t row, float*) {
      ops_.rms_norm(branch.row(row), gain.data(), norm.width, norm.eps, branch.row(row));
    });
  }
  add_rows(branch.row(0), desc.branch_scale, m_ - skip, rows(Rows::stream).row(skip));
}

std::span<float> CpuExecutor::hidden(int64_t row) {
  return {rows(Rows::stream).row(row), static_cast<size_t>(model_.config.hidden)};
}

void CpuExecutor::prepare_head(int64_t row, int64_t count) {
  RowBuffer& stream = rows(Rows::stream);
  prepare(model_.head_input, stream.row(row), stream.stride, count);
}

// Rows of the stream that are not neighbours become the first ones of `branch`.
void CpuExecutor::gather_wanted(int64_t first, int64_t count) {
  const int64_t hidden = model_.config.hidden;
  for (int64_t i = 0; i < count; ++i)
    std::copy_n(rows(Rows::stream).row(wanted_[static_cast<size_t>(first + i)]), hidden,
                rows(Rows::branch).row(i));
}

void CpuExecutor::logits(int64_t first, int64_t count) {
  const ModelConfig& c = model_.config;
  RowBuffer& out = rows(Rows::logits);
  const int64_t row = wanted_[static_cast<size_t>(first)];
  if (wanted_[static_cast<size_t>(first + count - 1)] == row + count - 1) {
    prepare_head(row, count);
  } else {
    gather_wanted(first, count);
    const RowBuffer& branch = rows(Rows::branch);
    prepare(model_.head_input, branch.values.data(), branch.stride, count);
  }
  const Matmul head{&model_.head, &model_.head_input, out.row(0), out.stride, count, &workspaces_};
  multiply({&head, 1});
  if (c.logit_scale == 1 && c.logit_cap == 0) return;
  for_rows(count, [&](int64_t r, float*) {
    for (int64_t i = 0; i < c.vocab; ++i)
      out.row(r)[i] *= c.logit_scale;
    if (c.logit_cap != 0) ops_.soft_cap(out.row(r), c.vocab, c.logit_cap);
  });
}

std::span<const float> CpuExecutor::logit_row(int64_t index) {
  return {rows(Rows::logits).row(index), static_cast<size_t>(model_.config.vocab)};
}

void CpuExecutor::prepare(const Input& input, const float* x, int64_t ldx, int64_t m) {
  for_rows(m, [&](int64_t row, float* scratch) {
    prepare_row(input, x + row * ldx, row, scratch, workspaces_);
  });
  tell(input, m);
}

void CpuExecutor::tell(const Input& input, int64_t m) const {
  if (!observer_) return;
  for (const PreparedInput& form : input.forms) {
    if (form.planes > 0 || form.transform.rotator != nullptr) continue;
    const Workspace& from = workspaces_[static_cast<size_t>(form.buffer)];
    observer_(input, {from.rows.data(), from.stride, m, -1, nullptr});
    return;
  }
}

void CpuExecutor::prepare_row(const Input& input, const float* x, int64_t row, float* scratch,
                              std::vector<Workspace>& workspaces) {
  const float* gain = input.gain.empty() ? nullptr : input.gain.data();
  for (const PreparedInput& form : input.forms) {
    Workspace& to = workspaces[static_cast<size_t>(form.buffer)];
    if (form.planes > 0) {
      prepare_input(ops_, form.transform, x, gain, input.eps, scratch, &to.quantized, row);
    } else {
      prepare_input(ops_, form.transform, x, gain, input.eps, to.rows.data() + row * to.stride,
                    nullptr, row);
    }
  }
}

// The products of one dispatch, their panels numbered through.
void CpuExecutor::multiply(std::span<const Matmul> products) {
  int64_t units = 0, most = 0;
  for (const Matmul& product : products) {
    units += units_of(*product.linear);
    most = std::max(most, product.m);
  }
  const auto run_units = [&](int64_t begin, int64_t end) {
    int64_t first = 0;
    for (const Matmul& product : products) {
      const int64_t count = units_of(*product.linear);
      const int64_t from = std::max(begin, first), to = std::min(end, first + count);
      if (from < to) multiply_units(product, from - first, to - first);
      first += count;
    }
  };
  ThreadPool& pool = model_.pool();
  if (most == 1) {  // each thread reads one contiguous piece of memory
    pool.for_ranges(units, 1, run_units);
  } else {
    const int64_t pieces = std::min(units, pool.size() * kPiecesPerThread);
    pool.for_each(pieces, [&](int64_t piece) {
      run_units(units * piece / pieces, units * (piece + 1) / pieces);
    });
  }
  for (const Matmul& product : products)
    rotate_back(product);
}

void CpuExecutor::multiply_units(const Matmul& product, int64_t begin, int64_t end) {
  const Linear& linear = *product.linear;
  const int64_t m = product.m;
  const int64_t row_begin = begin * kPanelRows;
  const int64_t row_end = std::min(end * kPanelRows, linear.rows);
  const auto input = [&](size_t pass) -> const Workspace& {
    const auto form = static_cast<size_t>(linear.input[pass]);
    return (*product.x)[static_cast<size_t>(product.input->forms[form].buffer)];
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

void CpuExecutor::add_bias(const Matmul& product, int64_t row_begin, int64_t row_end, int64_t begin,
                           int64_t end) {
  const std::vector<float>& bias = product.linear->bias;
  if (bias.empty()) return;
  for (int64_t t = begin; t < end; ++t) {
    float* y = product.y + t * product.ldy;
    for (int64_t row = row_begin; row < row_end; ++row)
      y[row] += bias[static_cast<size_t>(row)];
  }
}

void CpuExecutor::rotate_back(const Matmul& product) {
  const Linear& linear = *product.linear;
  if (linear.output == nullptr) return;
  for_rows(product.m, [&](int64_t row, float*) {
    linear.output->invert(product.y + row * product.ldy);
    add_bias(product, 0, linear.rows, row, row + 1);
  });
}

void CpuExecutor::add_rows(const float* branch, float scale, int64_t m, float* x) {
  const int64_t width = model_.config.hidden, stride = rows(Rows::stream).stride;
  for_rows(m, [&](int64_t row, float*) {
    const float* from = branch + row * stride;
    float* to = x + row * stride;
    for (int64_t i = 0; i < width; ++i)
      to[i] += scale * from[i];
  });
}

}  // namespace walsh
