// Takes arbitrary bytes as a rule's pattern, which is searched in tensor names and in the bytes
// themselves. It must be refused as usage, or the search must end within its step budget.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "quantize/recipe/recipe.h"
#include "walsh/error.h"

namespace {

constexpr uint64_t kSteps = 20'000;

void search(const walsh::TensorRule& rule, const std::string& name) {
  walsh::StepBudget steps(kSteps);
  try {
    rule.matches(name, steps);
  } catch (const walsh::Error& e) {
    if (e.code() != walsh::ErrorCode::limit) std::abort();
  }
  // One callout may come after the last step, and pass over the whole name.
  if (steps.spent() > kSteps + name.size() + 1) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const walsh::TensorRule rule = walsh::parse_ignore("re:" + text);
    for (const char* name : {"", "model.embed_tokens.weight", "lm_head.weight",
                             "model.layers.31.self_attn.o_proj.weight"})
      search(rule, name);
    search(rule, text);
  } catch (const walsh::Error& e) {
    if (e.code() != walsh::ErrorCode::usage) std::abort();
  }
  return 0;
}
