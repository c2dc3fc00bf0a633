// Specifies products by lookup, bit for bit, in plain scalar code.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/half.h"
#include "codec/product/product_tables.h"
#include "kernels/isa_tables.h"
#include "kernels/panel_layout.h"

namespace walsh::ref {

namespace {

using namespace detail;

struct Tables {
  int products[kGroupVectors][kProductEntries];
  int signs[kGroupVectors][kSignSums];
  float step;
};

int rounded(int value, int multiplier) {
  return (value * multiplier + (1 << 14)) >> 15;
}

// Fills the tables for the activations q[columns].
void fill(const PanelMatrix& w, const int8_t* q, int64_t columns, Tables& tables) {
  const int vectors = static_cast<int>(columns / kProductValues);
  const int residual = w.product->residual;
  int largest = 0;
  for (int v = 0; v < vectors; ++v) {
    const int8_t* a = q + vector_column(v);
    int top = 0, top_sign = 0;
    for (int p = 0; p < kProductEntries; ++p) {
      int sum = 0;
      for (int i = 0; i < kProductValues; ++i)
        sum += (w.codebook.data()[p * kProductValues + i] - residual) * a[4 * i];
      tables.products[v][p] = std::clamp(sum, -32768, 32767);
      top = std::max(top, std::abs(tables.products[v][p]));
    }
    for (int b = 0; b < kSignSums; ++b) {
      int sum = 0;
      for (int i = 0; i < kProductValues; ++i)
        sum += (b >> i & 1) != 0 ? -a[4 * i] : a[4 * i];
      tables.signs[v][b] = residual * sum;
      top_sign = std::max(top_sign, std::abs(tables.signs[v][b]));
    }
    largest = std::max(largest, top + top_sign);
  }
  const int multiplier = table_multiplier(largest);
  for (int v = 0; v < vectors; ++v) {
    for (int& value : tables.products[v])
      value = rounded(value, multiplier);
    for (int& value : tables.signs[v])
      value = rounded(value, multiplier);
  }
  tables.step = table_step(multiplier);
}

// Adds up the looked-up products of one row; `unit` points to its words of the group.
int add_up(const Tables& tables, const uint32_t* unit, int64_t columns) {
  int sum = 0;
  for (int v = 0; v < columns / kProductValues; ++v) {
    const uint32_t* words = unit + v / 8 * kProductWords * kPanelRows;
    const int half = v / 4 % 2, byte = 8 * (v % 4);
    const uint32_t pointer = words[half * kPanelRows] >> byte & 0xffu;
    const uint32_t signs = words[2 * kPanelRows] >> (byte + 4 * half) & 0xfu;
    sum += tables.products[v][pointer] + tables.signs[v][signs];
  }
  return sum;
}

}  // namespace

void matmul_lookup(const PanelMatmul& call) {
  const auto& [w, x, m, y, ldy, panel_begin, panel_end, accumulate] = call;
  const int64_t step = flush_columns(w, x), groups = ceil_div(w.cols, w.group);
  const int64_t begin = panel_begin * kPanelRows, end = std::min(panel_end * kPanelRows, w.rows);
  Tables tables;
  for (int64_t t = 0; t < m; ++t) {
    for (int64_t row = begin; row < end && !accumulate; ++row)
      y[t * ldy + row] = 0;
    for (int64_t c = 0; c < w.cols; c += step) {
      const int64_t columns = std::min(step, w.cols - c);
      for (int64_t v = t * x.planes; v < (t + 1) * x.planes; ++v) {
        fill(w, x.row(v) + c, columns, tables);
        const float x_scale = x.scales.data()[v * x.groups() + c / x.group] * tables.step;
        for (int64_t row = begin; row < end; ++row) {
          const int64_t panel = row / kPanelRows, lane = row % kPanelRows;
          const uint32_t* unit = w.codes.data() + panel * panel_words(w, kProductWords) +
                                 c / kUnitColumns * kProductWords * kPanelRows + lane;
          const int64_t group = (panel * groups + c / w.group) * kPanelRows + lane;
          const float scale = f16_to_f32(w.scales.data()[group]) * w.product->unit;
          float& out = y[t * ldy + row];
          out = std::fma(static_cast<float>(add_up(tables, unit, columns)), scale * x_scale, out);
        }
      }
    }
  }
}

}  // namespace walsh::ref
