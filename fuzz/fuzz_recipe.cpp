// Takes arbitrary bytes as a recipe. Every refusal must be bad_input, and an accepted recipe must
// survive a round trip through its text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "quantize/recipe/recipe_file.h"
#include "walsh/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const walsh::Recipe recipe = walsh::parse_recipe(text, "recipe");
    for (const walsh::TensorRule& rule : recipe.rules)
      if (rule.regex.has_value() != rule.pattern.starts_with("re:")) std::abort();
    const std::string saved = walsh::format_recipe(recipe);
    if (walsh::format_recipe(walsh::parse_recipe(saved, "saved")) != saved) std::abort();
  } catch (const walsh::Error& e) {
    if (e.code() != walsh::ErrorCode::bad_input || e.where() == "saved") std::abort();
  }
  return 0;
}
