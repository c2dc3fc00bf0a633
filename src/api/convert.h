// From the public options to the quantizer's recipe.
#pragma once

#include "quantize/recipe/recipe.h"
#include "walsh/quantizer.h"

namespace walsh {

// Throws usage for an unknown name or a combination that makes no sense.
Recipe to_recipe(const CompressOptions& options);

}  // namespace walsh
