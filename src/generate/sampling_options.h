// This is the table of sampling options. All that offers them follows from its rows: the flags of
// run and serve and the settings of a conversation, the fields of all requests, /openapi.json,
// /props, the page, the options of the C interface, the arguments of the Python package,
// generation_config.json, and docs/sampling.md, which tools/sampling_table.cpp writes. A new option
// needs a row, a member of GenerationOptions and of SamplerOptions, and its code in the sampler
// (CONTRIBUTING.md).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/sampler_options.h"
#include "walsh/engine.h"

namespace walsh {

struct SamplingOption {
  // A caller may leave the option `wanted` open; `decided` is the value that is then used.
  template <typename T>
  struct Number {
    std::optional<T> GenerationOptions::*wanted;
    T SamplerOptions::*decided;
  };
  using Seed = std::optional<uint64_t> GenerationOptions::*;
  using Flag = bool GenerationOptions::*;
  using Steps = std::string GenerationOptions::*;  // the names are separated by ';'
  using Texts = std::optional<std::vector<std::string>> GenerationOptions::*;
  using Biases = std::vector<std::pair<int32_t, float>> GenerationOptions::*;
  using Member = std::variant<Number<float>, Number<int>, Seed, Flag, Steps, Texts, Biases>;

  // This is llama.cpp's name, which the field of requests and the argument in Python have too.
  const char* name;
  Member member;
  std::vector<const char*> other_names = {};  // the field and the argument may also have these
  const char* flags;                          // these are llama.cpp's, separated by commas
  double least = 0, most = 0;                 // a number is in this range
  // This list names the other APIs that have the field. "chat" stands for OpenAI's chat and
  // completions, "responses" for its responses, and "messages" for Anthropic's messages.
  const char* apis = "";
  // Models specify the option by this key of generation_config.json. If it is null, they do not.
  const char* key = nullptr;
  // This option changes nothing unless the option named here has a value.
  const char* needs = nullptr;
  // Devices that sample support this option. If it is false, any value but the default makes the
  // host sample.
  bool devices = false;
  const char* help;

  std::vector<const char*> names() const;  // they are `name` and the others
};

std::span<const SamplingOption> sampling_options();

// Returns the row with that name or other name, or null.
const SamplingOption* find_sampling_option(std::string_view name);

// Returns whether devices that sample support these options; generate/sampler.h supports all.
bool on_devices(const SamplerOptions& options);

// Returns the default as a text such as "0.8" or "drawn".
std::string default_text(const SamplingOption& option);

// Returns the allowed values as a text such as "0 to 1" or "true, false".
std::string range_text(const SamplingOption& option);

}  // namespace walsh
