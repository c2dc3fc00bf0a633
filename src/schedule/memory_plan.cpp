#include "schedule/memory_plan.h"

#include <algorithm>

#include "arch/plan.h"
#include "model/convolved_rows.h"
#include "model/positions.h"

namespace walsh {
namespace {

uint64_t weight_bytes(const WeightSource& source, const ModelConfig& config) {
  uint64_t bytes = 0;
  for (const TensorShape& tensor : model_tensors(config))
    if (source.contains(tensor.name))
      bytes += tensor_bytes(source.format_of(tensor.name), tensor.rows, tensor.cols);
  return bytes;
}

// Returns the bytes of the states that a sequence has in recurrent layers.
double state_bytes(const ModelConfig& config) {
  double floats = 0;
  for (const LayerDesc& layer : config.layers) {
    if (!layer.has_state()) continue;
    const DeltaNetDesc& d = layer.delta_net;
    floats += static_cast<double>(convolved_rows(layer).floats());
    if (d.present()) floats += static_cast<double>(d.value_heads * d.key_dim * d.value_dim);
  }
  return floats * sizeof(float);
}

double attention_bytes(const ModelConfig& config, const CacheTypes& cache) {
  double bytes = 0;
  for (const LayerDesc& layer : config.layers)
    bytes += position_bytes(layer.attention, cache);
  return bytes;
}

}  // namespace

uint64_t planned_bytes(const WeightSource& source, const ModelConfig& config,
                       const CacheTypes& cache, const SchedulerOptions& options) {
  const int64_t capacity = choose_positions(config, options.positions);
  const int64_t sequences = options.running + (options.share_prefixes ? options.kept : 0);
  const int64_t positions =
      options.cache_positions > 0 ? options.cache_positions : options.running * capacity;
  double bytes = attention_bytes(config, cache) * static_cast<double>(positions);
  if (cache.coded())  // recent positions of every sequence stay as they are
    bytes += attention_bytes(config, {}) *
             static_cast<double>(sequences * std::min(capacity, cache.window));
  const int64_t kept = options.share_prefixes ? options.running : 0;
  const bool drafts = options.lookup || options.drafts != nullptr;
  const int64_t states = sequences + kept + (drafts ? kRevocableTokens * options.running : 0);
  bytes += state_bytes(config) * static_cast<double>(states);
  constexpr double kMost = 9e18;  // absurd numbers are refused when the model is loaded
  return weight_bytes(source, config) + static_cast<uint64_t>(std::min(bytes, kMost));
}

}  // namespace walsh
