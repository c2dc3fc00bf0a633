// Recipes can be files: --save-recipe writes them, --recipe reads them. They are JSON and may be
// written by hand:
//
//   {"walsh_recipe": 1, "type": "tc3", "embed_type": "q8_0",
//    "rules": [{"tensor": "re:v_proj", "type": "tc4"},
//              {"tensor": "model.layers.0.mlp.down_proj.weight", "type": "source"}]}
//
// Keys are those of Recipe, with its defaults; `source` keeps the checkpoint's type. `about` may
// hold anything and is not read.
#pragma once

#include <string>
#include <string_view>

#include "io/json.h"
#include "quantize/recipe/recipe.h"

namespace walsh {

inline constexpr int kRecipeVersion = 1;
inline constexpr size_t kMaxRecipeBytes = size_t{16} << 20;

// Throws bad_input naming `where` and the key for anything but a complete recipe of a known
// version. It refuses bad syntax, unknown or doubled keys, wrong types, unknown formats, a tensor
// or pattern that is named twice, and a pattern that is too long. Only Compressor knows whether the
// tensors exist.
Recipe parse_recipe(std::string_view json, std::string_view where);

// Does the inverse, with indentation; `about` is stored beside the recipe unless it is null.
std::string format_recipe(const Recipe& recipe, const Json& about = nullptr);

}  // namespace walsh
