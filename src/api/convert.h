// Converts the public options to a recipe.
#pragma once

#include "quantize/recipe/recipe.h"
#include "walsh/quantizer.h"

namespace walsh {

// Throws usage for an unknown name or an impossible combination.
Recipe to_recipe(const CompressOptions& options);

}  // namespace walsh
