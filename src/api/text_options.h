// Resolves GenerationOptions for a model: everything that sampling needs.
#pragma once

#include <memory>
#include <vector>

#include "api/load.h"
#include "generate/generator.h"
#include "walsh/engine.h"

namespace walsh {

struct TextOptions {
  SamplerOptions sampler;  // with the decided seed
  std::shared_ptr<const SequenceBreakers> breakers;
  std::vector<TokenBias> biases;
  std::vector<int32_t> stop_ids;
  std::shared_ptr<const grammar::TokenGrammar> grammar;
};

// Throws usage for options out of range, bad_input for wrong ones in the model's files.
TextOptions text_options(const LoadedModel& model, const GenerationOptions& options);

// Why a text ended.
FinishReason public_reason(StopReason reason);

}  // namespace walsh
