// The options of how tokens are chosen, each one said once: the flags of run and serve, the fields
// of all requests, /openapi.json, /props, the arguments of the Python package and docs/sampling.md
// follow from these rows. A new option is a row, a member of GenerationOptions and of
// SamplerOptions, and what the sampler does with it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/sampler_options.h"
#include "walsh/engine.h"

namespace walsh {

struct SamplingOption {
  // What a caller may leave open, and what is decided then.
  template <typename T>
  struct Number {
    std::optional<T> GenerationOptions::*wanted;
    T SamplerOptions::*decided;
  };
  using Seed = std::optional<uint64_t> GenerationOptions::*;
  using Flag = bool GenerationOptions::*;
  using Steps = std::string GenerationOptions::*;  // names with ';' between them
  using Texts = std::optional<std::vector<std::string>> GenerationOptions::*;
  using Biases = std::vector<std::pair<int32_t, float>> GenerationOptions::*;
  using Member = std::variant<Number<float>, Number<int>, Seed, Flag, Steps, Texts, Biases>;

  const char* name;  // of the field of requests and of the argument in Python
  Member member;
  std::vector<const char*> other_names;  // of the field
  const char* flags;                     // as llama.cpp calls them, with commas between them
  double least, most;                    // of a number
  // The key of generation_config.json by which a model says it; null: models do not.
  const char* key;
  const char* help;
};

std::span<const SamplingOption> sampling_options();

// What a row is where nobody says anything, as text: "0.8", "drawn".
std::string default_text(const SamplingOption& option);

// What values it takes, as text: "0 to 1", "true, false".
std::string range_text(const SamplingOption& option);

}  // namespace walsh
