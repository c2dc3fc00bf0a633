// Recipes as files: what --save-recipe writes and --recipe reads. JSON, may be written by hand:
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
// version: syntax, unknown or doubled keys, wrong types, unknown formats, a tensor or pattern named
// twice, a pattern that is too long. Whether the tensors exist is known to Compressor only.
Recipe parse_recipe(std::string_view json, std::string_view where);

// Returns the inverse, indented; `about` (null: none) is stored beside it.
std::string format_recipe(const Recipe& recipe, const Json& about = nullptr);

}  // namespace walsh
