// Takes arbitrary bytes as config.json. Every refusal must be a walsh::Error, and an accepted
// config must have a consistent shape and a plan.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "arch/plan.h"
#include "walsh/error.h"

namespace {

void check(const walsh::ModelConfig& config) {
  size_t activations = 0;
  for (const walsh::LayerDesc& layer : config.layers) {
    const walsh::AttentionDesc& a = layer.attention;
    if (a.heads % a.kv_heads != 0 || a.head_dim < 1 || a.head_dim % 2 != 0) std::abort();
    for (const walsh::MatrixDesc& m : layer.matrices)
      if (layer.input_of(m).width != m.cols) std::abort();
    activations += layer.activations.size();
    if (a.rope < 0) continue;
    const auto& rope = config.ropes[static_cast<size_t>(a.rope)];
    const walsh::RopeTable table = walsh::rope_table(rope, a.head_dim, config.max_positions);
    if (2 * static_cast<int64_t>(table.frequencies.size()) > a.head_dim) std::abort();
    for (const float frequency : table.frequencies)
      if (!(frequency >= 0)) std::abort();
  }
  if (walsh::make_plan(config).sites.size() != activations) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    check(walsh::parse_config(text, "config.json"));
  } catch (const walsh::Error&) {
  }
  return 0;
}
