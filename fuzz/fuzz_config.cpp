// config.json from arbitrary bytes: every refusal is a walsh::Error, and what is accepted has a
// consistent shape and a plan.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/config.h"
#include "model/rope.h"
#include "model/tensors.h"
#include "walsh/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const walsh::ModelConfig config = walsh::parse_config(text, "config.json");
    if (config.heads % config.kv_heads != 0 || config.head_dim < 1 || config.head_dim % 2 != 0 ||
        config.windows.size() != static_cast<size_t>(config.layers)) {
      std::abort();
    }
    if (walsh::make_plan(config).sites.size() != 4 * config.windows.size()) std::abort();
    for (float frequency : walsh::rope_frequencies(config.rope, config.head_dim))
      if (!(frequency >= 0)) std::abort();
  } catch (const walsh::Error&) {
  }
  return 0;
}
