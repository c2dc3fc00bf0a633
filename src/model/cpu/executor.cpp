// Splits products over threads by rows of weights, and everything else by tokens. A result never
// depends on the split.
#include "model/cpu/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "model/positions.h"

namespace walsh {
namespace {

// As many rows of logits are computed together as this many floats hold, and at least one.
constexpr int64_t kLogitFloats = int64_t{1} << 22;

void check_limit(uint64_t bytes, uint64_t limit) {
  if (bytes <= limit) return;
  throw Error(ErrorCode::limit, "workspaces of the forward pass",
              fmt::format("{} MiB of memory are needed, but only {} MiB are allowed", bytes >> 20,
                          limit >> 20));
}

// When several tokens are evaluated, each product is cut into this many pieces per thread, which
// evens out unequal cores.
constexpr int64_t kPiecesPerThread = 8;

int64_t units_of(const Linear& linear) {
  return (linear.rows + kPanelRows - 1) / kPanelRows;
}

}  // namespace

CpuExecutor::CpuExecutor(const Model& model, const KvPages& pages, uint64_t max_bytes,
                         int64_t snapshots)
    : model_(model),
      ops_(ops()),
      // With this many rows decoding the weights pays off, and the activations still fit into the
      // second-level cache.
      max_rows_(std::min(kCpuRows, std::max(pages.shape().capacity, pages.shape().sequences))),
      logit_rows_(std::clamp(kLogitFloats / model.config.vocab, int64_t{1}, max_rows_)),
      positions_(static_cast<size_t>(max_rows_)),
      cache_(make_kv_cache(model, pages, max_rows_, max_bytes)),
      delta_net_(model, pages.shape().sequences + snapshots, max_bytes - cache_->bytes()) {
  allocate(pages.shape().capacity, max_bytes - cache_->bytes() - delta_net_.bytes());
}

void CpuExecutor::allocate(int64_t positions, uint64_t max_bytes) {
  const ModelConfig& c = model_.config;
  const LayerWidths w = widest(c);
  std::array<int64_t, kRowKinds> widths = model_.steps.strides();
  // After the layers the rows of `branch` hold the rows of the stream whose logits are wanted.
  widths[static_cast<size_t>(Rows::branch)] = c.hidden;
  const auto count = [&](size_t i) {
    return static_cast<Rows>(i) == Rows::logits ? logit_rows_ : max_rows_;
  };
  uint64_t bytes = expert_bytes(model_, max_rows_);
  for (size_t i = 0; i < rows_.size(); ++i)
    bytes += RowBuffer::bytes(count(i), widths[i]);
  for (const BufferShape& shape : model_.steps.buffers)
    bytes += Workspace::bytes(shape, max_rows_);
  check_limit(bytes, max_bytes);
  for (size_t i = 0; i < rows_.size(); ++i)
    rows_[i] = RowBuffer(count(i), widths[i]);
  for (const RopeConfig& config : c.ropes) {
    Rope& rope = ropes_.emplace_back();
    rope.table = rope_table(config, rope_head_dim(c, ropes_.size() - 1), positions);
    rope.cos = AlignedArray<float>(static_cast<size_t>(max_rows_ * rope.pairs()));
    rope.sin = AlignedArray<float>(static_cast<size_t>(max_rows_ * rope.pairs()));
  }
  for (size_t i = 0; i < model_.steps.query_factors.size(); ++i)
    query_factors_.emplace_back(static_cast<size_t>(max_rows_));
  int64_t scratch = std::max(model_.embedding.scratch(),
                             attention_scratch(max_rows_, positions, static_cast<int>(w.head_dim)));
  scratch = std::max(scratch, model_.layer_embedding.scratch());
  for (const BufferShape& shape : model_.steps.buffers) {
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
  streams_ = batch.streams;
  first_read_ = batch.first_read;
  images_ = batch.images;
  axes_ = batch.axes;
  m_ = 0;
  wanted_.clear();
  for (const Run& run : runs_) {
    for (int64_t i = 0; i < run.rows; ++i) {
      if (i >= run.rows - run.logits) wanted_.push_back(m_);
      positions_[static_cast<size_t>(m_++)] = run.position + i;
    }
  }
  find_angles();
  find_together();
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
  const int64_t first = std::min(wanted_.empty() ? m_ : wanted_.front(), first_read_);
  for (int64_t layer = begin; layer < end; ++layer) {
    for (const Step& step : model_.steps.layers[static_cast<size_t>(layer)].steps) {
      const int64_t skip = step.only_wanted ? first : 0;
      if (skip < m_ || step.changes_state) execute(step, skip);
    }
    add_images(layer);
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

void CpuExecutor::execute(const Step& step, int64_t skip) {
  std::visit([&](const auto& s) { perform(s, step.layer, skip); }, step.op);
}

void CpuExecutor::embed() {
  for (const Step& step : model_.steps.embed)
    execute(step);
}

// Finds, for each run of the batch, the positions that see each other in both directions (rows of
// images).
void CpuExecutor::find_together() {
  together_.clear();
  int64_t first = 0;
  size_t run = 0;
  for (const PlacedRows& image : images_) {
    if (!image.together) continue;
    together_.resize(runs_.size());
    while (image.row >= first + runs_[run].rows)
      first += runs_[run++].rows;
    const int64_t begin = runs_[run].position + image.row - first;
    together_[run].push_back({begin, begin + image.rows});
  }
}

void CpuExecutor::perform(const step::Embed& s, int, int64_t) {
  for_rows(m_, [&](int64_t row, float* scratch) {
    const TokenTable& table = s.of_layers ? model_.layer_embedding : model_.embedding;
    table.look_up(tokens_[static_cast<size_t>(row)], s.scale, rows(s.to.rows).row(row) + s.to.first,
                  scratch);
    if (s.to.rows != Rows::pair) return;
    const Operand to = joined_stream(model_.config);
    std::copy_n(streams_.data() + row * to.width, to.width, rows(to.rows).row(row) + to.first);
  });
  if (s.of_layers) return;
  for (const PlacedRows& image : images_)
    for (int64_t i = 0; i < image.rows; ++i)
      std::copy_n(image.values + i * image.width, model_.config.hidden,
                  rows(s.to.rows).row(image.row + i) + s.to.first);
}

void CpuExecutor::add_images(int64_t layer) {
  const int64_t hidden = model_.config.hidden;
  for (const PlacedRows& image : images_) {
    for (int64_t row = 0; row < image.rows && (layer + 1) * hidden < image.width; ++row) {
      const float* from = image.values + row * image.width + (layer + 1) * hidden;
      float* to = rows(Rows::stream).row(image.row + row);
      for (int64_t i = 0; i < hidden; ++i)
        to[i] += from[i];
    }
  }
}

// Computes the angles of the rows' positions in float32, as the reference implementations do.
void CpuExecutor::find_angles() {
  for_rows(m_, [&](int64_t row, float*) {
    const int64_t at_row = positions_[static_cast<size_t>(row)];
    const AxisPositions axes =
        axes_.empty() ? AxisPositions{at_row, at_row, at_row} : axes_[static_cast<size_t>(row)];
    for (size_t i = 0; i < query_factors_.size(); ++i) {
      query_factors_[i][static_cast<size_t>(row)] =
          query_factor(model_.config, model_.steps.query_factors[i], at_row);
    }
    for (Rope& rope : ropes_) {
      for (int64_t i = 0; i < rope.pairs(); ++i) {
        const int64_t position =
            rope.table.axes.empty() ? at_row : axes[rope.table.axes[static_cast<size_t>(i)]];
        const float angle =
            static_cast<float>(position) * rope.table.frequencies[static_cast<size_t>(i)];
        const auto at = static_cast<size_t>(row * rope.pairs() + i);
        rope.cos[at] = std::cos(angle) * rope.table.magnitude;
        rope.sin[at] = std::sin(angle) * rope.table.magnitude;
      }
    }
  });
}

CpuExecutor::Source CpuExecutor::source(int layer, int index) const {
  const Input& input = model_.input(layer, index);
  return {input, vector(layer, input.norm.gain)};
}

// Multiplies the rows of the batch from `skip` on. Rows that a block computes for itself are
// packed: row `skip` is the first of its buffers. Rows of the residual stream and of the cache keep
// their places.
void CpuExecutor::perform(const step::Product& s, int layer, int64_t skip) {
  const Source made = source(layer, s.input);
  const int64_t m = m_ - skip;
  if (s.up.present()) {
    prepare_gated(s, made, skip);
  } else {
    RowBuffer& from = rows(s.from.rows);
    prepare(made, from.row(s.from.keeps_places() ? skip : 0), from.stride, m);
  }
  std::vector<Matmul> products;
  for (const step::Product::Output& output : s.outputs) {
    RowBuffer& to = rows(s.add ? Rows::branch : output.to.rows);
    products.push_back(
        {&model_.matrix(layer, output.matrix), &made.input, to.row(0), to.stride, m, &workspaces_});
  }
  multiply(products);
  if (s.add) add_rows({Rows::branch, model_.config.hidden}, 1, {Rows::stream, 0}, skip);
}

void CpuExecutor::prepare_gated(const step::Product& s, const Source& source, int64_t skip) {
  const int64_t up_skip = s.up.keeps_places() ? skip : 0;
  for_rows(m_ - skip, [&](int64_t row, float* scratch) {
    float* gate = rows(s.from.rows).row(row);
    float* up = rows(s.up.rows).row(up_skip + row) + s.up.first;
    gate_row(s.gate, gate, up, s.from.width);
    prepare_row(source, gate, row, scratch, workspaces_);
  });
  tell(source.input, m_ - skip);
}

// Computes gate = function(gate) * up. Both may be the same array; `up` may be overwritten.
void CpuExecutor::gate_row(const GateRule& rule, float* gate, float* up, int64_t width) const {
  if (rule.function == GateFunction::clamped_silu) {
    // silu(slope g) / slope is g / (1 + exp(-slope g)).
    for (int64_t i = 0; i < width; ++i) {
      gate[i] = rule.slope * std::min(gate[i], rule.limit);
      up[i] = (1 + std::clamp(up[i], -rule.limit, rule.limit)) / rule.slope;
    }
  }
  if (rule.function == GateFunction::relu) {
    for (int64_t i = 0; i < width; ++i)
      gate[i] = std::max(gate[i], 0.0f) * up[i];
    return;
  }
  const auto gate_mul = rule.function == GateFunction::gelu_tanh ? ops_.gelu_mul : ops_.silu_mul;
  gate_mul(gate, up, width, gate);
}

void CpuExecutor::perform(const step::CenterRows& s, int, int64_t skip) {
  const int64_t first = s.x.keeps_places() ? skip : 0;
  for_rows(m_ - skip, [&](int64_t row, float*) {
    float* x = rows(s.x.rows).row(first + row);
    double sum = 0;
    for (int64_t i = 0; i < s.x.width; ++i)
      sum += static_cast<double>(x[i]);
    const auto mean = static_cast<float>(sum / static_cast<double>(s.x.width));
    for (int64_t i = 0; i < s.x.width; ++i)
      x[i] -= mean;
  });
}

void CpuExecutor::perform(const step::NormRows& s, int layer, int64_t skip) {
  for_rows(m_ - skip, [&](int64_t row, float*) {
    normalize(s.norm, layer, rows(s.x.rows).row(row) + s.x.first, s.x.width);
  });
}

void CpuExecutor::perform(const step::AddBranch& s, int layer, int64_t skip) {
  if (s.norm.present()) perform(step::NormRows{s.branch, s.norm}, layer, skip);
  add_rows(s.branch, s.scale, s.to, skip);
  if (s.factor < 0) return;
  const float factor = *vector(layer, s.factor);
  const int64_t first = s.to.keeps_places() ? skip : 0;
  for_rows(m_ - skip, [&](int64_t row, float*) {
    float* x = rows(s.to.rows).row(first + row);
    for (int64_t i = 0; i < s.to.width; ++i)
      x[i] *= factor;
  });
}

std::span<float> CpuExecutor::hidden(int64_t row) {
  return {rows(Rows::stream).row(row), static_cast<size_t>(model_.config.hidden)};
}

void CpuExecutor::prepare_head(int64_t row, int64_t count) {
  RowBuffer& stream = rows(Rows::stream);
  prepare(source(-1, 0), stream.row(row), stream.stride, count);
}

// Copies the wanted rows of the stream, which are not neighbours, to the first rows of `branch`.
void CpuExecutor::gather_wanted(int64_t first, int64_t count) {
  const int64_t hidden = model_.config.hidden;
  for (int64_t i = 0; i < count; ++i)
    std::copy_n(rows(Rows::stream).row(wanted_[static_cast<size_t>(first + i)]), hidden,
                rows(Rows::branch).row(i));
}

void CpuExecutor::logits(int64_t first, int64_t count) {
  first_logit_ = first;
  logit_count_ = count;
  execute(model_.steps.head.steps.front());
}

// Computes the logits of the rows that logits() was called for.
void CpuExecutor::perform(const step::Logits& s, int layer, int64_t) {
  RowBuffer& out = rows(s.to.rows);
  const int64_t first = first_logit_, count = logit_count_;
  const int64_t row = wanted_[static_cast<size_t>(first)];
  const Source made = source(layer, 0);
  if (wanted_[static_cast<size_t>(first + count - 1)] == row + count - 1) {
    prepare_head(row, count);
  } else {
    gather_wanted(first, count);
    const RowBuffer& branch = rows(Rows::branch);
    prepare(made, branch.values.data(), branch.stride, count);
  }
  const Matmul head{&model_.head, &made.input, out.row(0), out.stride, count, &workspaces_};
  multiply({&head, 1});
  if (s.scale == 1 && s.cap == 0) return;
  for_rows(count, [&](int64_t r, float*) {
    for (int64_t i = 0; i < s.to.width; ++i)
      out.row(r)[i] *= s.scale;
    if (s.cap != 0) ops_.soft_cap(out.row(r), s.to.width, s.cap);
  });
}

std::span<const float> CpuExecutor::logit_row(int64_t index) {
  return {rows(Rows::logits).row(index), static_cast<size_t>(model_.config.vocab)};
}

void CpuExecutor::prepare(const Source& source, const float* x, int64_t ldx, int64_t m) {
  for_rows(m, [&](int64_t row, float* scratch) {
    prepare_row(source, x + row * ldx, row, scratch, workspaces_);
  });
  tell(source.input, m);
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

void CpuExecutor::prepare_row(const Source& source, const float* x, int64_t row, float* scratch,
                              std::vector<Workspace>& workspaces) {
  const float* gain = source.gain;
  const float eps = source.input.norm.eps;
  for (const PreparedInput& form : source.input.forms) {
    Workspace& to = workspaces[static_cast<size_t>(form.buffer)];
    if (form.planes > 0) {
      prepare_input(ops_, form.transform, x, gain, eps, scratch, &to.quantized, row);
    } else {
      prepare_input(ops_, form.transform, x, gain, eps, to.rows.data() + row * to.stride, nullptr,
                    row);
    }
  }
}

// Computes several products in one dispatch to the threads, with their panels numbered
// consecutively.
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
  if (most == 1) {  // Each thread reads one contiguous piece of memory.
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
    const PanelMatrix& w = *linear.passes[pass];
    if (x.quantized.q.empty()) {
      ops_.matmul_f32(
          {w, x.rows.data(), x.stride, m, product.y, product.ldy, begin, end, pass > 0});
    } else {
      const bool by_lookup = w.product && model_.activations == ActivationMode::lut;
      const auto matmul = by_lookup ? ops_.matmul_lookup : ops_.matmul_i8;
      matmul({w, x.quantized, m, product.y, product.ldy, begin, end, pass > 0});
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

// Adds `branch`, whose row 0 belongs to row `skip` of the batch, to the rows of the batch from
// `skip` on.
void CpuExecutor::add_rows(const Operand& branch, float scale, const Operand& x, int64_t skip) {
  const int64_t first = x.keeps_places() ? skip : 0;
  for_rows(m_ - skip, [&](int64_t row, float*) {
    const float* from = rows(branch.rows).row(row);
    float* to = rows(x.rows).row(first + row);
    for (int64_t i = 0; i < branch.width; ++i)
      to[i] += scale * from[i];
  });
}

}  // namespace walsh
