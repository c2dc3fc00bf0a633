#include "allocate/cost.h"

#include <algorithm>
#include <chrono>
#include <vector>
namespace walsh {
namespace {

constexpr int64_t kFew = 16, kMany = 128;  // tokens

double seconds_of(const ErringModel& model, int64_t tokens) {
  LayerStream stream = model.stream({std::vector<int32_t>(static_cast<size_t>(tokens))});
  const auto begin = std::chrono::steady_clock::now();
  stream.run_to(static_cast<int64_t>(model.model().layers.size()));
  stream.run_head([](int64_t, std::span<const float>) {});
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

ModelSpeed measure_speed(const ErringModel& model) {
  const int64_t positions = model.model().config.max_positions;
  const int64_t few = std::min(kFew, positions), many = std::min(kMany, positions);
  seconds_of(model, few);  // reads weights that are on disk
  ModelSpeed speed;
  speed.seconds_per_step = seconds_of(model, few);
  speed.seconds_per_token = seconds_of(model, many) / static_cast<double>(many);
  return speed;
}

}  // namespace walsh
