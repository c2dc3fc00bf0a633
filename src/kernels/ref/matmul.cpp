// Specifies the matmuls, bit for bit, in plain scalar code.
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/half.h"
#include "kernels/isa_tables.h"
#include "kernels/panel_layout.h"

namespace walsh::ref {

namespace {

using namespace detail;

float scale_at(const AlignedArray<uint16_t>& scales, int64_t panel, int64_t groups, int64_t group,
               int lane) {
  const int64_t index = (panel * groups + group) * kPanelRows + lane;
  return f16_to_f32(scales[static_cast<size_t>(index)]);
}

int level_i8(const PanelMatrix& w, const uint32_t* words, int lane, int64_t col) {
  if (w.product) return product_level_i8(w, words, lane, col);
  const int code = code_at(words, w.code->bits, lane, col);
  return w.code->bits == 8 ? code : w.code->levels_i8[code];
}

int64_t words_of_panel(const PanelMatrix& w) {
  return panel_words(w, w.product ? kProductWords : w.code->bits);
}

int32_t dot(const PanelMatrix& w, const uint32_t* words, int lane, const int8_t* q, int64_t begin,
            int64_t end) {
  int32_t sum = 0;
  for (int64_t c = begin; c < end; ++c)
    sum += level_i8(w, words, lane, c) * q[c];
  return sum;
}

// Returns the scale of the activations at a column of the last plane of token t.
float last_plane_scale(const ActivationsI8& x, int64_t t, int64_t col) {
  const int64_t v = (t + 1) * x.planes - 1;
  return x.scales.data()[v * x.groups() + col / x.group];
}

int trellis_level_at(const PanelMatrix& w, int64_t panel, int row, int64_t col) {
  const TrellisCode& code = *w.trellis;
  const int t = tile_position(row, static_cast<int>(col % kTileCols));
  const uint32_t state = trellis_state(code, trellis_tile(w, panel, col), t / code.values);
  return trellis_level_i8(code, state, t % code.values);
}

// Returns the scale of a panel's row in trellis formats. `block` is 0 if a row has one scale.
float trellis_scale(const PanelMatrix& w, int64_t panel, int row, int64_t block) {
  const int64_t groups = w.trellis->block_scales ? column_blocks(w.cols) : 1;
  return scale_at(w.scales, panel, groups, block, trellis_lane(row));
}

float trellis_row_times_vector(const PanelMatrix& w, const ActivationsI8& x, int64_t panel, int row,
                               int64_t t) {
  float y = 0;
  for (int64_t c = 0; c < w.cols;) {
    const int64_t end = c + trellis_flush_columns(w, x, c);
    const int64_t block = column_block(c, w.cols);
    const float factor =
        w.trellis->block_scales ? trellis_scale(w, panel, row, block) : w.col_factors.data()[block];
    int32_t sum = 0;
    for (int64_t v = t * x.planes; v < (t + 1) * x.planes; ++v) {
      sum *= kPlaneRatio;
      for (int64_t i = c; i < end; ++i)
        sum += trellis_level_at(w, panel, row, i) * x.row(v)[i];
    }
    y = std::fma(static_cast<float>(sum), factor * last_plane_scale(x, t, c), y);
    c = end;
  }
  const float unit = w.trellis->unit;
  return y * (w.trellis->block_scales ? unit : trellis_scale(w, panel, row, 0) * unit);
}

float row_times_vector(const PanelMatrix& w, const ActivationsI8& x, int64_t panel, int lane,
                       int64_t t) {
  if (w.trellis) return trellis_row_times_vector(w, x, panel, lane, t);
  const int64_t step = flush_columns(w, x);
  const int64_t w_groups = ceil_div(w.cols, w.group);
  const uint32_t* words = w.codes.data() + panel * words_of_panel(w);
  const float unit = level_unit(w);
  float y = 0;
  for (int64_t c = 0; c < w.cols; c += step) {
    const int64_t end = std::min(c + step, w.cols);
    const float scale = scale_at(w.scales, panel, w_groups, c / w.group, lane) * unit;
    int32_t sum = 0, x_sum = 0;
    for (int64_t v = t * x.planes; v < (t + 1) * x.planes; ++v) {
      const int8_t* q = x.row(v);
      sum = sum * kPlaneRatio + dot(w, words, lane, q, c, end);
      x_sum = x_sum * kPlaneRatio + std::accumulate(q + c, q + end, 0);
    }
    const float x_scale = last_plane_scale(x, t, c);
    y = std::fma(static_cast<float>(sum), scale * x_scale, y);
    if (w.offset_group == 0) continue;
    const float offset =
        scale_at(w.offsets, panel, ceil_div(w.cols, w.offset_group), c / w.offset_group, lane);
    y = std::fma(offset, static_cast<float>(x_sum) * x_scale, y);
  }
  return y;
}

// Returns one decoded weight as the specification says.
float weight_at(const PanelMatrix& w, int64_t panel, int lane, int64_t col) {
  if (w.trellis) {
    const int64_t block = column_block(col, w.cols);
    const float scale = w.trellis->block_scales
                            ? trellis_scale(w, panel, lane, block)
                            : trellis_scale(w, panel, lane, 0) * w.col_factors.data()[block];
    const auto level = static_cast<float>(trellis_level_at(w, panel, lane, col));
    return scale * (w.trellis->unit * level);
  }
  const uint32_t* words = w.codes.data() + panel * words_of_panel(w);
  const float scale = scale_at(w.scales, panel, ceil_div(w.cols, w.group), col / w.group, lane);
  if (w.product) {
    const int level = product_level_i8(w, words, lane, col);
    return scale * (w.product->unit * static_cast<float>(level));
  }
  const int code = code_at(words, w.code->bits, lane, col);
  const float level = w.code->bits == 8 ? static_cast<float>(code) : w.code->levels[code];
  if (w.offset_group == 0) return scale * level;
  return scale * level +
         scale_at(w.offsets, panel, ceil_div(w.cols, w.offset_group), col / w.offset_group, lane);
}

// Calls body(row, panel, lane) for the rows of a range of panels.
template <typename Body>
void for_rows(const PanelMatrix& w, int64_t panel_begin, int64_t panel_end, const Body& body) {
  const int64_t end = std::min(panel_end * kPanelRows, w.rows);
  for (int64_t row = panel_begin * kPanelRows; row < end; ++row)
    body(row, row / kPanelRows, static_cast<int>(row % kPanelRows));
}

}  // namespace

void matmul_i8(const PanelMatmul& call) {
  for_rows(call.w, call.panel_begin, call.panel_end, [&](int64_t row, int64_t panel, int lane) {
    for (int64_t t = 0; t < call.m; ++t) {
      const float sum = row_times_vector(call.w, call.x, panel, lane, t);
      float& out = call.y[t * call.ldy + row];
      out = call.accumulate ? out + sum : sum;
    }
  });
}

void matmul_f32(const PanelMatmulF32& call) {
  for_rows(call.w, call.panel_begin, call.panel_end, [&](int64_t row, int64_t panel, int lane) {
    for (int64_t t = 0; t < call.m; ++t) {
      float& out = call.y[t * call.ldy + row];
      float total = 0;
      for (int64_t c = 0; c < call.w.cols; c += kF32Block) {
        float block = 0;
        for (int64_t i = c; i < std::min(c + kF32Block, call.w.cols); ++i)
          block = std::fma(weight_at(call.w, panel, lane, i), call.x[t * call.ldx + i], block);
        total += block;
      }
      out = call.accumulate ? out + total : total;
    }
  });
}

}  // namespace walsh::ref
