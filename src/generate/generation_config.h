// Reads how a model's authors want text to be generated. They say so in generation_config.json or,
// if there is none, by the same keys in config.json, as transformers reads them.
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

// Keeps the texts of the files and parses them on demand, so that callers that generate no text are
// not refused because of them.
class GenerationConfig {
 public:
  // `generation_json` may be empty. `path` is the model's path, for errors.
  GenerationConfig(const ModelConfig& config, std::string_view generation_json,
                   std::string_view config_json, const std::string& path);

  // Returns the options in `wanted`, completed from the file by the keys of the rows in
  // generate/sampling_options.h; do_sample false means temperature 0. Options that neither gives
  // have their default, and the seed is random. Throws bad_input naming file and key for a wrong
  // value in the file, usage for a wrong value in `wanted`.
  SamplerOptions sampler(const GenerationOptions& wanted) const;

  // Returns the logit biases in `wanted`. Throws usage for a token that the model does not have and
  // for a bias that is NaN or plus infinity.
  std::vector<TokenBias> biases(const GenerationOptions& wanted) const;

  // Returns the ids that end a text. They are the eos_token_id of generation_config.json, else that
  // of config.json. Throws bad_input naming file and key for anything but ids of the vocabulary.
  std::vector<int32_t> stop_ids() const;

 private:
  std::string text_, where_;
  std::string config_where_;
  std::vector<int32_t> config_eos_;
  int64_t vocab_;
};

}  // namespace walsh
