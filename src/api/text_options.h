// Resolves GenerationOptions for a model: everything that sampling needs.
#pragma once

#include "api/load.h"
#include "generate/generator.h"
#include "walsh/engine.h"

namespace walsh {

// With the seed that was drawn.
using TextOptions = ChoiceOptions;

// Throws usage for options out of range, bad_input for wrong ones in the model's files.
TextOptions text_options(const LoadedModel& model, const GenerationOptions& options);

// Why a text ended.
FinishReason public_reason(StopReason reason);

}  // namespace walsh
