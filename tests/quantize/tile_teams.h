// Test helper: searches by teams of blocks (quantize/cuda/tile_search.h), against that of the CPU.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random.h"
#include "formats/trellis.h"
#include "quantize/cuda/tile_search.h"
#include "quantize/trellis/trellis_search.h"

namespace walsh::testing_support {

// The states of tiles of N(0,1), [tiles][steps], as `plan` cuts the search of them.
inline std::vector<uint16_t> states_in_teams(const TrellisCode& code, Effort effort,
                                             const std::vector<float>& targets,
                                             const cuda::encoding::TileSearchPlan& plan) {
  const cuda::OwnedStream stream;
  const cuda::encoding::TileSearchTables tables(code, stream.get());
  const cuda::Buffer on_device(targets.size() * sizeof(float)),
      states(targets.size() * sizeof(uint16_t)), best(plan.best_bytes);
  cuda::encoding::TileSearchArgs args = tables.args(plan);
  args.seam = detail::seam_weights(effort);
  args.tiles = static_cast<int64_t>(targets.size()) / kTileWeights;
  args.targets = on_device.as<float>();
  args.states = states.as<uint16_t>();
  args.best = best.as();
  cuda::copy_to_device(on_device.as(), targets.data(), on_device.bytes(), stream.get());
  cuda::encoding::launch_tile_search(code, plan, args, stream.get());
  std::vector<uint16_t> result(targets.size());
  cuda::copy_to_host(result.data(), states.as(), states.bytes(), stream.get());
  cuda::synchronize(stream.get());
  return result;
}

// By so many teams of 2^size blocks.
inline void expect_same_in_teams(const std::string& name, bool products, int size, int teams,
                                 int64_t tiles, Effort effort = Effort::fast) {
  const TrellisCode& code = get_format(name).trellis;
  cuda::encoding::SearchDevice device;
  device.shared_bytes = 227 << 10;
  device.teams[size] = teams;
  const auto plan = products ? cuda::encoding::plan_tile_products(code, tiles, device)
                             : cuda::encoding::plan_tile_floats(code, tiles, device);
  ASSERT_EQ(plan.team, 1 << size) << name;
  ASSERT_GT(plan.blocks, 0) << name << " in teams of " << plan.team;
  Random random(3);
  std::vector<float> targets(static_cast<size_t>(tiles * kTileWeights));
  for (float& x : targets)
    x = static_cast<float>(random.normal()) / code.prescale;
  std::vector<uint16_t> expected(targets.size());
  const detail::TrellisTable table(code);
  detail::TileSearch search(table, detail::seam_weights(effort));
  for (int64_t tile = 0; tile < tiles; ++tile)
    search.encode(targets.data() + tile * kTileWeights, expected.data() + tile * kTileWeights);
  const std::vector<uint16_t> found = states_in_teams(code, effort, targets, plan);
  for (int64_t tile = 0; tile < tiles; ++tile) {
    for (int t = 0; t < tile_steps(code); ++t) {
      const auto at = static_cast<size_t>(tile * kTileWeights + t);
      ASSERT_EQ(found[at], expected[at])
          << name << " in teams of " << plan.team << ", " << plan.group << " at once, tile " << tile
          << " step " << t;
    }
  }
}

}  // namespace walsh::testing_support
