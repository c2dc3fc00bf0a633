// The layers of the forward pass. Work is split over threads by rows of weights for products, by
// tokens for everything else; a result never depends on the split.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "model/session.h"

namespace walsh {
namespace {

// Queries times heads per piece of attention work: what the kernels handle at once.
constexpr int64_t kAttentionRows = 144;
// Pieces per thread and product when several tokens are evaluated: evens out unequal cores.
constexpr int64_t kPiecesPerThread = 8;

int64_t units_of(const Linear& linear) {
  return (linear.rows + kPanelRows - 1) / kPanelRows;
}

}  // namespace

// Calls body(row, scratch) for each row; a single one stays on this thread.
template <typename Body>
void Session::for_rows(int64_t m, Body&& body) {
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

void Session::embed(std::span<const int32_t> tokens) {
  const int64_t half = model_.config.head_dim / 2;
  for_rows(static_cast<int64_t>(tokens.size()), [&](int64_t row, float* scratch) {
    model_.embed(tokens[static_cast<size_t>(row)], x_.data() + row * x_stride_, scratch);
    // Angles in float32, as the reference implementations have them.
    const float position = static_cast<float>(position_ + row);
    for (int64_t i = 0; i < half; ++i) {
      const float angle = position * frequencies_[static_cast<size_t>(i)];
      cos_[static_cast<size_t>(row * half + i)] = std::cos(angle);
      sin_[static_cast<size_t>(row * half + i)] = std::sin(angle);
    }
  });
}

// Rows before `skip` are only needed by later tokens: they end with their keys and values.
void Session::run_layer(int64_t index, int64_t m, int64_t skip) {
  const Layer& layer = model_.layers[static_cast<size_t>(index)];
  prepare(layer.attention_input, x_.data(), x_stride_, m);
  multiply({{&layer.q, &layer.attention_input, q_.data(), q_stride_},
            {&layer.k, &layer.attention_input, k_.data(), kv_stride_},
            {&layer.v, &layer.attention_input, v_.data(), kv_stride_}},
           m);
  store_keys(layer, index, m);
  if (skip == m) return;
  attend(layer, index, m, skip);
  float* x = x_.data() + skip * x_stride_;
  prepare(layer.o_input, attended_.data(), q_stride_, m - skip);
  multiply({{&layer.o, &layer.o_input, branch_.data(), x_stride_}}, m - skip);
  add_rows(branch_.data(), m - skip, x);
  mlp(layer, m - skip, x);
}

void Session::mlp(const Layer& layer, int64_t m, float* x) {
  const int64_t width = model_.config.intermediate;
  prepare(layer.mlp_input, x, x_stride_, m);
  multiply({{&layer.gate, &layer.mlp_input, gate_.data(), mlp_stride_},
            {&layer.up, &layer.mlp_input, up_.data(), mlp_stride_}},
           m);
  for_rows(m, [&](int64_t row, float* scratch) {
    float* gate = gate_.data() + row * mlp_stride_;
    ops_.silu_mul(gate, up_.data() + row * mlp_stride_, width, gate);
    prepare_row(layer.down_input, gate, row, scratch);
  });
  multiply({{&layer.down, &layer.down_input, branch_.data(), x_stride_}}, m);
  add_rows(branch_.data(), m, x);
}

void Session::prepare(const Input& input, const float* x, int64_t ldx, int64_t m) {
  for_rows(m,
           [&](int64_t row, float* scratch) { prepare_row(input, x + row * ldx, row, scratch); });
}

void Session::prepare_row(const Input& input, const float* x, int64_t row, float* scratch) {
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
void Session::multiply(std::initializer_list<Product> products, int64_t m) {
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
    return;
  }
  const int64_t pieces = std::min(units, pool.size() * kPiecesPerThread);
  pool.for_each(pieces, [&](int64_t piece) {
    run_units(units * piece / pieces, units * (piece + 1) / pieces);
  });
}

void Session::multiply_units(const Product& product, int64_t begin, int64_t end, int64_t m) {
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
      ops_.matmul_i8(w, x.quantized, m, product.y, product.ldy, begin, end, pass > 0);
    }
  }
  if (linear.bias.empty()) return;
  for (int64_t t = 0; t < m; ++t) {
    float* y = product.y + t * product.ldy;
    for (int64_t row = row_begin; row < row_end; ++row)
      y[row] += linear.bias[static_cast<size_t>(row)];
  }
}

// Norms and rotates queries and keys, and puts keys and values into the cache.
void Session::store_keys(const Layer& layer, int64_t index, int64_t m) {
  const ModelConfig& c = model_.config;
  const int head_dim = static_cast<int>(c.head_dim);
  const auto normalize = [&](float* x, int64_t heads, const std::vector<float>& gain) {
    if (gain.empty()) return;
    for (int64_t h = 0; h < heads; ++h)
      ops_.rms_norm(x + h * head_dim, gain.data(), head_dim, c.norm_eps, x + h * head_dim);
  };
  for_rows(m, [&](int64_t row, float*) {
    float* q = q_.data() + row * q_stride_;
    float* k = k_.data() + row * kv_stride_;
    const float* v = v_.data() + row * kv_stride_;
    const float* cos = cos_.data() + row * (head_dim / 2);
    const float* sin = sin_.data() + row * (head_dim / 2);
    normalize(q, c.heads, layer.q_norm);
    normalize(k, c.kv_heads, layer.k_norm);
    ops_.rope(q, static_cast<int>(c.heads), head_dim, cos, sin);
    ops_.rope(k, static_cast<int>(c.kv_heads), head_dim, cos, sin);
    for (int64_t h = 0; h < c.kv_heads; ++h)
      cache_.store(ops_, index, h, position_ + row, k + h * head_dim, v + h * head_dim);
  });
}

// Rows [skip, m) of the queries to rows [0, m - skip) of attended_.
void Session::attend(const Layer& layer, int64_t index, int64_t m, int64_t skip) {
  const ModelConfig& c = model_.config;
  const KvView view = cache_.layer(index);
  const int64_t group = c.heads / c.kv_heads;
  const int64_t queries = std::max<int64_t>(1, kAttentionRows / group);
  const int64_t blocks = (m - skip + queries - 1) / queries;
  const float scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  std::atomic<int64_t> next{0};
  model_.pool().run([&](int thread, int) {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < blocks * c.kv_heads;) {
      const int64_t head = i % c.kv_heads;
      const int64_t row = i / c.kv_heads * queries;
      const int64_t column = head * group * c.head_dim;
      ops_.attention(view, static_cast<int>(head), static_cast<int>(group),
                     q_.data() + (skip + row) * q_stride_ + column, q_stride_,
                     std::min(queries, m - skip - row), position_ + skip + row, layer.window, scale,
                     attended_.data() + row * q_stride_ + column, q_stride_,
                     scratch_[static_cast<size_t>(thread)].data());
    }
  });
}

void Session::add_rows(const float* branch, int64_t m, float* x) {
  const int64_t width = model_.config.hidden;
  for_rows(m, [&](int64_t row, float*) {
    const float* from = branch + row * x_stride_;
    float* to = x + row * x_stride_;
    for (int64_t i = 0; i < width; ++i)
      to[i] += from[i];
  });
}

}  // namespace walsh
