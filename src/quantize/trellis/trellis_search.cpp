#include "quantize/trellis/trellis_search.h"

#include <algorithm>
#include <cmath>

#include "base/cpu.h"
#include "base/stop.h"
#include "formats/trellis.h"

namespace walsh::detail {
namespace {

constexpr float kForbidden = 1e30f;
constexpr int kMostFan = 256;  // states of a class

// The first of the least of `count` costs, a multiple of 4; any of them if they are NaN. Two passes
// without a branch that depends on the data take a fraction of the time of one with it.
int first_least(const float* cost, int count) {
  float least[4] = {cost[0], cost[1], cost[2], cost[3]};
  for (int i = 4; i < count; i += 4) {
    for (int j = 0; j < 4; ++j)
      least[j] = std::min(least[j], cost[i + j]);
  }
  const float all = std::min(std::min(least[0], least[1]), std::min(least[2], least[3]));
  return static_cast<int>(std::find(cost, cost + count - 1, all) - cost);
}

}  // namespace

TrellisForward trellis_forward() {
  switch (current_isa()) {
    case Isa::ref:
      return trellis_forward_ref;
    case Isa::avx2:
      return trellis_forward_avx2;
    default:
      return trellis_forward_avx512;
  }
}

TrellisForwardTiles trellis_forward_tiles() {
  switch (current_isa()) {
    case Isa::ref:
      return trellis_forward_tiles_ref;
    case Isa::avx2:
      return trellis_forward_tiles_avx2;
    default:
      return trellis_forward_tiles_avx512;
  }
}

TrellisTable::TrellisTable(const TrellisCode& code)
    : step_bits(code.step_bits),
      state_bits(code.state_bits),
      values(code.values),
      scale(target_scale(code)),
      levels(static_cast<size_t>(code.values) << code.state_bits),
      searched(levels.size()),
      ordered(levels.size()),
      by_class(levels.size()) {
  float* out = levels.data();
  for (int v = 0; v < values; ++v) {
    for (int s = 0; s < states(); ++s)
      *out++ = trellis_level(code, static_cast<uint32_t>(s), v);
  }
  set_order();
}

float TrellisTable::searched_target(float x) const {
  if (scale == 0) return x;
  return std::clamp(std::nearbyint(x * scale), -kLargestWholeTarget, kLargestWholeTarget);
}

void TrellisTable::set_order() {
  for (size_t i = 0; i < levels.size(); ++i)
    searched[i] = scale == 0 ? levels[i] : std::nearbyint(levels[i] * scale);
  float* out = ordered.data();
  for (int block = 0; block < classes(); block += kBlock) {
    for (int first = 0; first < states(); first += classes()) {
      for (int v = 0; v < values; ++v)
        out = std::copy_n(searched.data() + v * states() + first + block, kBlock, out);
    }
  }
  out = by_class.data();
  for (int p = 0; p < classes(); ++p) {
    for (int v = 0; v < values; ++v) {
      for (int state = p; state < states(); state += classes())
        *out++ = searched.data()[v * states() + state];
    }
  }
}

TileSearch::TileSearch(const TrellisTable& table, int seam_weights)
    : table_(table),
      steps_(kTileWeights / table.values),
      seam_weights_(seam_weights),
      best_(static_cast<size_t>(kAtOnce * (steps_ + 1)) * static_cast<size_t>(table.classes())) {}

void TileSearch::encode(const float* x, uint16_t* states) {
  check_stop();
  encode_together(x, 1, states);
}

void TileSearch::encode(const float* x, int tiles, uint16_t* states) {
  while (tiles > 0) {
    check_stop();
    const int now = tiles >= kAtOnce ? kAtOnce : 1;
    encode_together(x, now, states);
    x += now * kTileWeights;
    states += now * kTileWeights;
    tiles -= now;
  }
}

// One tile or kAtOnce.
void TileSearch::forward(const float* const* x, int tiles, int steps) {
  float* to[kAtOnce];
  for (int i = 0; i < tiles; ++i)
    to[i] = best(i);
  if (tiles == 1) return trellis_forward()(table_, x[0], steps, to[0]);
  trellis_forward_tiles()(table_, x, steps, to);
}

// First the free path over the weights around each seam, which says the class of the last state.
void TileSearch::encode_together(const float* x, int tiles, uint16_t* states) {
  const int classes = table_.classes(), around = 2 * seam_weights_ / table_.values;
  float windows[kAtOnce][kTileWeights] = {}, targets[kAtOnce][kTileWeights];
  const float *window[kAtOnce] = {}, *tile[kAtOnce] = {};
  for (int i = 0; i < tiles; ++i) {
    std::transform(x + i * kTileWeights, x + (i + 1) * kTileWeights, targets[i],
                   [&](float target) { return table_.searched_target(target); });
    tile[i] = targets[i];
    window[i] = windows[i];
    std::copy_n(tile[i] + kTileWeights - seam_weights_, seam_weights_, windows[i]);
    std::copy_n(tile[i], seam_weights_, windows[i] + seam_weights_);
    std::fill_n(best(i), classes, 0.0f);
  }
  forward(window, tiles, around);
  int seam[kAtOnce] = {};
  for (int i = 0; i < tiles; ++i) {
    seam[i] = seam_class(window[i], around, best(i));
    std::fill_n(best(i), classes, kForbidden);
    best(i)[seam[i]] = 0;
  }
  forward(tile, tiles, steps_);
  for (int i = 0; i < tiles; ++i)
    trace(tile[i], steps_, best(i), seam[i], states + i * kTileWeights);
}

// The class of the last state: that of the best free path over the weights around the seam.
int TileSearch::seam_class(const float* window, int steps, const float* best) const {
  const int classes = table_.classes();
  const float* last = best + int64_t{steps} * classes;
  uint16_t states[kTileWeights];
  const auto least = std::min_element(last, last + classes) - last;
  trace(window, steps, best, static_cast<int>(least), states);
  return states[steps / 2 - 1] & (classes - 1);
}

// The least-cost path whose last state is in `last_class`; of equal costs the lowest state.
void TileSearch::trace(const float* x, int steps, const float* best, int last_class,
                       uint16_t* states) const {
  const int classes = table_.classes(), fan = 1 << table_.step_bits;
  float cost[kMostFan] = {};
  for (int t = steps - 1, p = last_class; t >= 0; --t) {
    const float* before = best + int64_t{t} * classes;
    const float* level = table_.by_class.data() + int64_t{p} * table_.values * fan;
    for (int first = 0; first < fan; ++first)
      cost[first] = before[(first * classes + p) >> table_.step_bits];
    for (int v = 0; v < table_.values; ++v, level += fan) {
      const float target = x[t * table_.values + v];
      for (int first = 0; first < fan; ++first) {
        const float d = target - level[first];
        cost[first] += d * d;
      }
    }
    const int state = first_least(cost, fan) * classes + p;
    states[t] = static_cast<uint16_t>(state);
    p = state >> table_.step_bits;
  }
}

}  // namespace walsh::detail
