#include "quantize/trellis/trellis_search.h"

#include <algorithm>
#include <cmath>

#include "base/cpu.h"
#include "base/stop.h"
#include "formats/trellis.h"
#include "quantize/trellis/first_least.h"

namespace walsh::detail {
namespace {

constexpr float kForbidden = 1e30f;
constexpr int kMostFan = 256;  // states of a class

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

WholeForward whole_forward() {
  switch (current_isa()) {
    case Isa::ref:
      return whole_forward_ref;
    case Isa::avx2:
      return whole_forward_avx2;
    default:
      return whole_forward_avx512;
  }
}

TrellisTable::TrellisTable(const TrellisCode& code)
    : step_bits(code.step_bits),
      state_bits(code.state_bits),
      values(code.values),
      parts(whole_parts(code)),
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
  if (!whole()) return x;
  const float most = kLargestWholeTarget * static_cast<float>(parts);
  // Also of a target that is not a number comes one.
  return std::fmin(std::fmax(std::nearbyint(x * scale), -most), most);
}

void TrellisTable::set_order() {
  for (size_t i = 0; i < levels.size(); ++i)
    searched[i] = !whole() ? levels[i] : std::nearbyint(levels[i] * scale);
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
  if (whole()) set_whole_order();
}

void TrellisTable::set_whole_order() {
  whole_ordered = AlignedArray<int16_t>(levels.size());
  whole_by_class = AlignedArray<int16_t>(levels.size());
  const int fan = 1 << step_bits;
  for (int state = 0; state < states(); ++state) {
    const int p = state % classes(), first = state / classes();
    const int64_t ordered_at = (int64_t{p / kBlock} * fan + first) * kBlock + p % kBlock;
    const int64_t by_class_at = int64_t{p} * fan + first;
    for (int v = 0; v < 2; ++v) {
      const auto level = static_cast<int16_t>(searched.data()[v * states() + state]);
      whole_ordered.data()[2 * ordered_at + v] = level;
      whole_by_class.data()[2 * by_class_at + v] = level;
    }
  }
}

TileSearch::TileSearch(const TrellisTable& table, int seam_weights)
    : table_(table), steps_(kTileWeights / table.values), seam_weights_(seam_weights) {
  if (table.whole()) {
    whole_.emplace(table, seam_weights);
  } else {
    best_ = AlignedArray<float>(static_cast<size_t>(kAtOnce * best_size()));
  }
}

void TileSearch::encode(const float* x, uint16_t* states) {
  check_stop();
  encode_together(x, 1, states);
}

void TileSearch::encode(const float* x, int tiles, uint16_t* states) {
  while (tiles > 0) {
    check_stop();
    const int now = whole_ ? std::min(tiles, kAtOnce) : tiles >= kAtOnce ? kAtOnce : 1;
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
  if (whole_) return whole_->encode_together(x, tiles, states);
  const int classes = table_.classes(), around = 2 * seam_weights_ / table_.values;
  float windows[kAtOnce][kTileWeights] = {};
  const float *window[kAtOnce] = {}, *tile[kAtOnce] = {};
  for (int i = 0; i < tiles; ++i) {
    tile[i] = x + i * kTileWeights;
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
