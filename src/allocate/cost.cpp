#include "allocate/cost.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace walsh {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kFew = 16, kMany = 128;  // these count tokens
constexpr int64_t kSteps = 4;              // the first step finds nothing prepared

double seconds(Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

double seconds_of(const ErringModel& model, int64_t tokens) {
  LayerStream stream = model.stream({std::vector<int32_t>(static_cast<size_t>(tokens))});
  const auto begin = Clock::now();
  stream.run_to(static_cast<int64_t>(model.model().layers.size()));
  stream.run_head([](int64_t, std::span<const float>) {});
  return seconds(Clock::now() - begin);
}

}  // namespace

double seconds_per_token(const ErringModel& model) {
  const int64_t positions = model.model().config.max_positions;
  const int64_t few = std::min(kFew, positions), many = std::min(kMany, positions);
  seconds_of(model, few);
  return seconds_of(model, many) / static_cast<double>(many);
}

double seconds_per_step(const Model& model, SelfTextOptions options) {
  options.windows = std::min(options.windows, kSideBySide);
  options.ctx = std::min(options.ctx, kSteps + 1);
  std::vector<Clock::time_point> begun;
  write_self_text(model, options, [&](int64_t, int64_t) { begun.push_back(Clock::now()); });
  if (begun.size() < 3) return 0;
  const auto steps = static_cast<double>(begun.size() - 2);  // the first one does not count
  return seconds(begun.back() - begun[1]) / steps;
}

}  // namespace walsh
