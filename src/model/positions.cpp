#include "model/positions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "walsh/error.h"

namespace walsh {
namespace {

constexpr int64_t kDefaultPositions = 4096;

}  // namespace

int64_t most_positions(const ModelConfig& config) {
  int64_t positions = config.max_positions;
  // A longer context would change the rope of short texts as well, so the context of the training
  // is the default.
  for (const RopeConfig& rope : config.ropes)
    if (depends_on_context(rope)) positions = std::min(positions, rope.original_max_positions);
  return positions;
}

int64_t choose_positions(const ModelConfig& config, int64_t wanted) {
  if (wanted == 0) return std::min(most_positions(config), kDefaultPositions);
  if (wanted < 0 || wanted > config.max_positions) {
    throw Error(ErrorCode::usage, "context",
                fmt::format("{} tokens are asked for, the model has room for 1 to {}", wanted,
                            config.max_positions));
  }
  return wanted;
}

double position_bytes(const AttentionDesc& attention, const CacheTypes& types) {
  if (attention.latent.present() && types.coded()) {
    const auto rank = static_cast<double>(attention.latent.rank);
    return rank * cache_bits(*types.keys, attention.latent.rank) / 8 +
           static_cast<double>(attention.latent.rope_dim * int64_t{sizeof(uint16_t)});
  }
  const auto bytes = [&](int64_t values, const CacheType& type) {
    return static_cast<double>(values) * cache_bits(type, attention.cache_dim()) / 8;
  };
  return bytes(attention.cached_keys(), *types.keys) +
         bytes(attention.cached_values(), *types.values);
}

AxisPositions axis_positions(std::span<const ImageRows> images, int64_t position) {
  int64_t saved = 0;  // The grids in front of it have taken so many positions less than rows.
  for (const ImageRows& image : images) {
    if (position < image.position) break;
    if (image.columns == 0) continue;
    const int64_t start = image.position - saved, at = position - image.position;
    if (position < image.end())
      return {start, start + at / image.columns, start + at % image.columns};
    saved += image.rows - std::max(image.columns, image.rows / image.columns);
  }
  return {position - saved, position - saved, position - saved};
}

float query_factor(const ModelConfig& config, const QueryFactors& f, int64_t position) {
  float factor = 1;
  if (f.rope >= 0) factor = query_scale(config.ropes[static_cast<size_t>(f.rope)], position);
  if (f.growth == 0) return factor;
  const int64_t steps = (position + 1) / f.growth_step;
  return factor * (1 + f.growth * std::log1p(static_cast<float>(steps)));
}

}  // namespace walsh
