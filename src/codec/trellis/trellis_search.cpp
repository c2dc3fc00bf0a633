#include "codec/trellis/trellis_search.h"

#include <algorithm>
#include <cmath>

#include "base/cpu.h"
#include "base/stop.h"
#include "codec/trellis/first_least.h"
#include "codec/trellis/trellis.h"
#include "walsh/error.h"

namespace walsh::detail {
namespace {

constexpr int kMostFan = 256;  // A class has at most this many states.

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

TrellisTable::TrellisTable(const TrellisCode& code)
    : step_bits(code.step_bits),
      state_bits(code.state_bits),
      parts(target_parts(code)),
      scale(target_scale(code)),
      levels(size_t{2} << code.state_bits),
      ordered(levels.size()),
      by_class(levels.size()) {
  if (code.rule == TrellisRule::table)
    throw Error(ErrorCode::internal, "trellis", "walsh no longer encodes codes from tables");
  float* out = levels.data();
  for (int v = 0; v < 2; ++v) {
    for (int s = 0; s < states(); ++s)
      *out++ = trellis_level(code, static_cast<uint32_t>(s), v);
  }
  set_order();
}

int16_t TrellisTable::searched_target(float x) const {
  const float most = kLargestSearched * static_cast<float>(parts);
  // fmin and fmax turn NaN into a number, too.
  return static_cast<int16_t>(std::fmin(std::fmax(std::nearbyint(x * scale), -most), most));
}

void TrellisTable::set_order() {
  const int fan = 1 << step_bits;
  for (int state = 0; state < states(); ++state) {
    const int p = state % classes(), first = state / classes();
    const int64_t ordered_at = (int64_t{p / kBlock} * fan + first) * kBlock + p % kBlock;
    const int64_t by_class_at = int64_t{p} * fan + first;
    for (int v = 0; v < 2; ++v) {
      const auto level =
          static_cast<int16_t>(std::nearbyint(levels.data()[v * states() + state] * scale));
      ordered.data()[2 * ordered_at + v] = level;
      by_class.data()[2 * by_class_at + v] = level;
    }
  }
}

TileSearch::TileSearch(const TrellisTable& table, int seam_weights)
    : table_(table),
      steps_(kTileWeights / 2),
      seam_(seam_weights / 2),
      best_(static_cast<size_t>(kAtOnce * tile_size())),
      targets_(static_cast<size_t>(kAtOnce * 2 * (seam_ + steps_))) {}

void TileSearch::encode(const float* x, int tiles, uint16_t* states) {
  for (; tiles > 0; tiles -= kAtOnce) {
    check_stop();
    encode_together(x, std::min(tiles, kAtOnce), states);
    x += kAtOnce * kTileWeights;
    states += kAtOnce * kTileWeights;
  }
}

// Encodes one to kAtOnce tiles together.
void TileSearch::encode_together(const float* x, int tiles, uint16_t* states) {
  const int classes = table_.classes();
  int all[kAtOnce] = {}, again[kAtOnce] = {}, seam[kAtOnce] = {}, count = 0;
  for (int i = 0; i < tiles; ++i) {
    all[i] = i;
    set_targets(x + i * kTileWeights, i);
    std::fill_n(row(i, 0), classes, 0);
  }
  forward(all, tiles, 0, seam_);
  for (int i = 0; i < tiles; ++i)
    std::copy_n(row(i, seam_), classes, row(i, 0));
  forward(all, tiles, seam_, covers_tile() ? steps_ : seam_);
  const auto trace_tile = [&](int i) {
    return trace(i, steps_, seam[i], states + i * kTileWeights);
  };
  for (int i = 0; i < tiles; ++i) {
    seam[i] = seam_class(i);
    if (covers_tile() && trace_tile(i) == seam[i]) continue;
    std::fill_n(row(i, 0), classes, kForbiddenCost);
    row(i, 0)[seam[i]] = 0;
    again[count++] = i;
  }
  if (count == 0) return;
  forward(again, count, seam_, steps_);
  for (int i = 0; i < count; ++i)
    trace_tile(again[i]);
}

// Sets the targets of the weights in front of the seam, and of those of the tile.
void TileSearch::set_targets(const float* x, int tile) {
  const auto rounded = [&](float target) { return table_.searched_target(target); };
  int16_t* to = targets(tile);
  to = std::transform(x + kTileWeights - 2 * seam_, x + kTileWeights, to, rounded);
  std::transform(x, x + kTileWeights, to, rounded);
}

// Runs the forward pass over the targets of steps from `begin` on, starting with row 0 of the
// costs.
void TileSearch::forward(const int* tiles, int count, int begin, int steps) {
  int32_t* to[kAtOnce] = {};
  const int16_t* from[kAtOnce] = {};
  for (int i = 0; i < count; ++i) {
    to[i] = row(tiles[i], 0);
    from[i] = targets(tiles[i]) + 2 * begin;
  }
  trellis_forward()(table_, from, count, steps, to);
}

// Returns the class at the seam of the best free path over the weights around it.
int TileSearch::seam_class(int tile) {
  const int32_t* last = row(tile, seam_);
  const auto least = std::min_element(last, last + table_.classes()) - last;
  uint16_t states[kTileWeights];
  return trace(tile, seam_, static_cast<int>(least), states);
}

// Finds the least-cost path over the first steps of the tile that ends in a state of `last_class`.
// It takes the lowest state of equal costs. Returns the class that it begins after.
int TileSearch::trace(int tile, int steps, int last_class, uint16_t* states) {
  const int classes = table_.classes(), fan = 1 << table_.step_bits;
  int32_t cost[kMostFan] = {};
  int p = last_class;
  for (int t = steps - 1; t >= 0; --t) {
    const int32_t* before = row(tile, t);
    const int16_t* level = table_.by_class.data() + 2 * int64_t{p} * fan;
    const int16_t* target = targets(tile) + 2 * (seam_ + t);
    for (int first = 0; first < fan; ++first) {
      const int32_t d = target[0] - level[2 * first], e = target[1] - level[2 * first + 1];
      cost[first] = before[(first * classes + p) >> table_.step_bits] + d * d + e * e;
    }
    const int state = first_least(cost, fan) * classes + p;
    states[t] = static_cast<uint16_t>(state);
    p = state >> table_.step_bits;
  }
  return p;
}

}  // namespace walsh::detail
