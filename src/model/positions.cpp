#include "model/positions.h"

#include <fmt/format.h>

#include <algorithm>

#include "walsh/error.h"

namespace walsh {
namespace {

constexpr int64_t kDefaultPositions = 4096;

}  // namespace

int64_t choose_positions(const ModelConfig& config, int64_t wanted) {
  if (wanted == 0) return std::min(config.max_positions, kDefaultPositions);
  if (wanted < 0 || wanted > config.max_positions) {
    throw Error(
        ErrorCode::usage, "context",
        fmt::format("{} positions asked for, the model has 1 to {}", wanted, config.max_positions));
  }
  return wanted;
}

}  // namespace walsh
