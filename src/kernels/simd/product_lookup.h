// Runs the loops of products by lookup for any vector width. The tables of one group of columns are
// filled for one plane of a token, and stay in the first-level cache while all rows use them.
//
// `Engine` is the instruction set: types Tables (with their `step`) and Filler, which fills them
// from a group of activations; kPanels, the number of panels that add_group takes at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/panel_layout.h"

namespace walsh::detail {

template <class Engine>
void lookup_products(const PanelMatmul& call) {
  constexpr int64_t kPanels = Engine::kPanels;
  const auto& [w, x, m, y, ldy, panel_begin, panel_end, accumulate] = call;
  const int64_t step = flush_columns(w, x);
  const int64_t first = panel_begin * kPanelRows, last = std::min(panel_end * kPanelRows, w.rows);
  typename Engine::Filler filler(w);
  typename Engine::Tables tables;
  for (int64_t t = 0; t < m; ++t) {
    float* out = y + t * ldy;
    if (!accumulate) std::fill(out + first, out + last, 0.0f);
    for (int64_t c = 0; c < w.cols; c += step) {
      const int64_t columns = std::min(step, w.cols - c);
      for (int64_t v = t * x.planes; v < (t + 1) * x.planes; ++v) {
        filler.fill(x.row(v) + c, columns, tables);
        const float x_scale = x.scales.data()[v * x.groups() + c / x.group] * tables.step;
        for (int64_t panel = panel_begin; panel < panel_end; panel += kPanels) {
          Engine::add_group(w, tables, panel, std::min(kPanels, panel_end - panel), c, columns,
                            x_scale, out);
        }
      }
    }
  }
}

}  // namespace walsh::detail
