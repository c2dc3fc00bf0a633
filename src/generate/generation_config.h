// How a model's authors want text to be generated: generation_config.json, or, where a model has
// none, the same keys of its config.json, as transformers reads them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "arch/config.h"
#include "generate/sampler.h"
#include "kernels/sampler_options.h"
#include "walsh/engine.h"

namespace walsh {

// Keeps the texts. They are read when they are asked for, so that what generates no text is not
// refused for them.
class GenerationConfig {
 public:
  // `generation_json` may be empty. `path` is the model's, for errors.
  GenerationConfig(const ModelConfig& config, std::string_view generation_json,
                   std::string_view config_json, const std::string& path);

  // What `wanted` says, and for what it leaves open the file, by the keys of the rows of
  // generate/sampling_options.h; do_sample false means temperature 0. What neither says keeps its
  // default, a seed is drawn. Throws bad_input naming file and key for a value of the file that is
  // wrong or out of range, usage for one that is asked for.
  SamplerOptions sampler(const GenerationOptions& wanted) const;

  // The biases that are asked for. Throws usage for a token that the model does not have and for
  // what is added if it is no number or plus infinity.
  std::vector<TokenBias> biases(const GenerationOptions& wanted) const;

  // The ids that end a text: eos_token_id, that of config.json if generation_config.json has none.
  // Throws bad_input naming file and key for anything but ids of the vocabulary.
  std::vector<int32_t> stop_ids() const;

 private:
  std::string text_, where_;
  std::string config_where_;
  std::vector<int32_t> config_eos_;
  int64_t vocab_;
};

}  // namespace walsh
