#include <algorithm>

#include "formats/trellis.h"
#include "quantize/cuda/tile_search.h"

namespace walsh::cuda::encoding {
namespace {

constexpr int kGroups[] = {8, 4, 2};
// Instructions per state: of each tile, and once for all tiles of a block.
constexpr int kTileCost = 5, kLevelCost = 7;

uint64_t shared_bytes(const TrellisCode& code, int group) {
  const auto floats = static_cast<uint64_t>((kTileSize + 2 * kSearchThreads) * group);
  return (static_cast<uint64_t>(code.values) << code.state_bits) + floats * sizeof(float);
}

}  // namespace

std::vector<uint8_t> packed_levels(const TrellisCode& code) {
  const int classes = 1 << (code.state_bits - code.step_bits), pairs = classes / 2;
  const int fan = 1 << code.step_bits;
  std::vector<uint8_t> levels;
  for (int quad = 0; quad < fan / 4; ++quad) {
    for (int pair = 0; pair < pairs; ++pair) {
      for (int i = 0; i < 8; ++i) {
        const int state = (4 * quad + i / 2) * classes + 2 * pair + i % 2;
        for (int v = 0; v < code.values; ++v) {
          const int level = trellis_level_i8(code, static_cast<uint32_t>(state), v);
          levels.push_back(static_cast<uint8_t>(level + 128));
        }
      }
    }
  }
  return levels;
}

bool has_tile_search(const TrellisCode& code) {
  return (code.values == 1 || code.values == 2) && code.step_bits >= 2 && code.step_bits <= 8 &&
         code.state_bits <= kMostStateBits && code.state_bits - code.step_bits >= 4;
}

TileSearchPlan plan_tile_search(const TrellisCode& code, int64_t tiles, int multiprocessors) {
  TileSearchPlan plan;
  int64_t least = 0;
  for (const int group : kGroups) {
    const int64_t groups = (tiles + group - 1) / group;
    const int64_t waves = (groups + multiprocessors - 1) / multiprocessors;
    const int64_t cost = waves * (kTileCost * group + kLevelCost);
    if (plan.group != 0 && cost >= least) continue;
    least = cost;
    plan.group = group;
    plan.blocks = static_cast<int>(std::min<int64_t>(groups, multiprocessors));
  }
  plan.shared_bytes = shared_bytes(code, plan.group);
  const auto classes = uint64_t{1} << (code.state_bits - code.step_bits);
  plan.best_bytes = static_cast<uint64_t>(plan.blocks * plan.group * (tile_steps(code) + 1)) *
                    classes * sizeof(float);
  return plan;
}

}  // namespace walsh::cuda::encoding
