// Resolves GenerationOptions for a model: everything that sampling needs.
#pragma once

#include "api/load.h"
#include "schedule/request.h"
#include "walsh/engine.h"

namespace walsh {

// How a prompt is to be continued, with the seed that was drawn. Throws usage for options out of
// range, bad_input for wrong ones in the model's files.
TextRequest text_request(const LoadedModel& model, std::span<const int32_t> prompt,
                         const GenerationOptions& options);

// Why a text ended.
FinishReason public_reason(StopReason reason);

}  // namespace walsh
