// From the public options to the quantizer's recipe.
#pragma once

#include <string_view>

#include "quantize/recipe.h"
#include "rotate/plan.h"
#include "walsh/quantizer.h"

namespace walsh {

Recipe to_recipe(const CompressOptions& options);

// The plan that the quantizer asks the model layer for.
ModelPlan plan_of_config(std::string_view config_json, std::string_view where);

}  // namespace walsh
