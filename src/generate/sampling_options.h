// The table of sampling options. The flags of run and serve, the fields of all requests,
// /openapi.json, /props, the arguments of the Python package and docs/sampling.md follow from its
// rows. A new option needs a row, a member of GenerationOptions and of SamplerOptions, and its code
// in the sampler.
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
  // Pointers to an option that a caller may leave open, and to the value that is decided.
  template <typename T>
  struct Number {
    std::optional<T> GenerationOptions::*wanted;
    T SamplerOptions::*decided;
  };
  using Seed = std::optional<uint64_t> GenerationOptions::*;
  using Flag = bool GenerationOptions::*;
  using Steps = std::string GenerationOptions::*;  // names separated by ';'
  using Texts = std::optional<std::vector<std::string>> GenerationOptions::*;
  using Biases = std::vector<std::pair<int32_t, float>> GenerationOptions::*;
  using Member = std::variant<Number<float>, Number<int>, Seed, Flag, Steps, Texts, Biases>;

  const char* name;  // of the field of requests and the argument in Python
  Member member;
  std::vector<const char*> other_names;  // aliases of the field
  const char* flags;                     // llama.cpp's, separated by commas
  double least, most;                    // range of a number
  // The key of generation_config.json; null: models do not specify it.
  const char* key;
  const char* help;
};

std::span<const SamplingOption> sampling_options();

// The default as text: "0.8", "drawn".
std::string default_text(const SamplingOption& option);

// The allowed values as text: "0 to 1", "true, false".
std::string range_text(const SamplingOption& option);

}  // namespace walsh
