#include <algorithm>

#include "codec/trellis/cuda/tile_search.h"
#include "codec/trellis/trellis.h"
#include "codec/trellis/trellis_kernels.h"

namespace walsh::cuda::encoding {
namespace {

constexpr int kGroups[] = {8, 4, 2};
// A state takes this many instructions, for each tile, and once for all tiles of a block.
constexpr int kTileCost = 5, kLevelCost = 7;
// In the same measure, the products of a block's tiles take this on an H200.
constexpr int kProductsGroup = 16, kProductsCost = 64;

uint64_t shared_bytes(const TrellisCode& code, int group) {
  const auto floats = static_cast<uint64_t>((kTileSize + 2 * kSearchThreads) * group);
  return (static_cast<uint64_t>(code.values) << code.state_bits) + floats * sizeof(float);
}

// Returns how much shared memory the squares, the targets and the least costs of all warps need.
uint64_t products_shared_bytes(const TrellisCode& code) {
  return (uint64_t{2} << code.state_bits) + kTileSize * kProductsGroup * sizeof(int16_t) +
         uint64_t{kSearchThreads} * 32 * sizeof(int32_t);
}

// Returns how many instructions per state follow each other on a multiprocessor.
int64_t cost_of(int64_t tiles, int group, int cost, int multiprocessors) {
  const int64_t groups = (tiles + group - 1) / group;
  return (groups + multiprocessors - 1) / multiprocessors * cost;
}

TileSearchPlan with_group(const TrellisCode& code, int64_t tiles, int group,
                          const DeviceInfo& device) {
  TileSearchPlan plan;
  plan.group = group;
  plan.blocks =
      static_cast<int>(std::min<int64_t>((tiles + group - 1) / group, device.multiprocessors));
  const auto classes = uint64_t{1} << (code.state_bits - code.step_bits);
  plan.best_bytes =
      static_cast<uint64_t>(plan.blocks * group * (tile_steps(code) + 1)) * classes * sizeof(float);
  return plan;
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

std::vector<uint16_t> packed_squares(const TrellisCode& code) {
  const int classes = 1 << (code.state_bits - code.step_bits), fan = 1 << code.step_bits;
  std::vector<uint16_t> squares(static_cast<size_t>(classes * fan));
  for (int p = 0; p < classes; ++p) {
    for (int first = 0; first < fan; ++first) {
      const auto state = static_cast<uint32_t>(first * classes + p);
      const int a = trellis_level_i8(code, state, 0), b = trellis_level_i8(code, state, 1);
      const int sum = a * a + b * b;
      squares[static_cast<size_t>(p * fan + (first ^ (2 * (p % 8))))] =
          static_cast<uint16_t>(sum / 127 << 8 | sum % 127);
    }
  }
  return squares;
}

bool has_tile_search(const TrellisCode& code) {
  return code.rule != TrellisRule::table && code.step_bits >= 4 && code.step_bits <= 8 &&
         code.state_bits <= kMostStateBits && code.state_bits - code.step_bits >= 4;
}

bool has_tile_products(const TrellisCode& code) {
  return code.rule == TrellisRule::bytes && code.step_bits >= 5 && code.step_bits <= 8 &&
         code.state_bits <= kMostStateBits && code.state_bits - code.step_bits >= 6;
}

TileSearchPlan plan_tile_products(const TrellisCode& code, int64_t tiles,
                                  const DeviceInfo& device) {
  TileSearchPlan plan = with_group(code, tiles, kProductsGroup, device);
  plan.products = true;
  plan.shared_bytes = products_shared_bytes(code);
  return plan;
}

TileSearchPlan plan_tile_floats(const TrellisCode& code, int64_t tiles, const DeviceInfo& device) {
  int group = 0;
  int64_t least = 0;
  for (const int size : kGroups) {
    const int64_t cost =
        cost_of(tiles, size, kTileCost * size + kLevelCost, device.multiprocessors);
    if (group != 0 && cost >= least) continue;
    least = cost;
    group = size;
  }
  TileSearchPlan plan = with_group(code, tiles, group, device);
  plan.shared_bytes = shared_bytes(code, group);
  return plan;
}

TileSearchPlan plan_tile_search(const TrellisCode& code, int64_t tiles, const DeviceInfo& device) {
  const TileSearchPlan floats = plan_tile_floats(code, tiles, device);
  const int multiprocessors = device.multiprocessors;
  // Tensor cores have integer products with 32 bytes per row from sm_80 on.
  if (!has_tile_products(code) || products_shared_bytes(code) > device.shared_bytes) return floats;
  const int64_t cost =
      cost_of(tiles, floats.group, kTileCost * floats.group + kLevelCost, multiprocessors);
  if (cost_of(tiles, kProductsGroup, kProductsCost, multiprocessors) > cost) return floats;
  return plan_tile_products(code, tiles, device);
}

TileSearchTables::TileSearchTables(const TrellisCode& code, Stream stream) : code_(code) {
  const auto send = [&](Buffer& buffer, const auto& table) {
    const uint64_t bytes = table.size() * sizeof(table[0]);
    buffer = Buffer(bytes);
    copy_to_device(buffer.as(), table.data(), bytes, stream);
    synchronize(stream);
  };
  send(levels_, packed_levels(code));
  if (has_tile_products(code)) send(squares_, packed_squares(code));
}

TileSearchArgs TileSearchTables::args(const TileSearchPlan& plan) const {
  TileSearchArgs args;
  args.levels = plan.products ? squares_.as<const void>() : levels_.as<const void>();
  args.target_scale = detail::target_scale(code_);
  args.target_parts = static_cast<float>(detail::target_parts(code_));
  args.multiplier = code_.multiplier;
  args.step_bits = code_.step_bits;
  args.state_bits = code_.state_bits;
  return args;
}

}  // namespace walsh::cuda::encoding
