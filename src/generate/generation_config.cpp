#include "generate/generation_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <variant>

#include "generate/sampling_options.h"
#include "io/json.h"
#include "walsh/error.h"

namespace walsh {
namespace {

Json parse_object(std::string_view text, const std::string& where) {
  Json json = parse_json(text, where);
  if (json.is_object()) return json;
  throw Error(ErrorCode::bad_input, where,
              fmt::format("found {}, expected an object", describe_json(json)));
}

// Refuses ids outside a vocabulary of that size.
void check_ids(const std::vector<int32_t>& ids, int64_t vocab, const std::string& where) {
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocab) continue;
    throw Error(ErrorCode::bad_input, where,
                fmt::format("'eos_token_id' is {}, expected ids below {}", id, vocab));
  }
}

// Takes an option from the file; if it is absent the default stays.
void decide_by_file(const Json& json, const std::string& where, const SamplingOption& option,
                    float& decided) {
  if (const auto found = find_number(json, option.key, where, option.least, option.most))
    decided = static_cast<float>(*found);
}

// Takes an option from the file. A number beyond any text's length means all tokens.
void decide_by_file(const Json& json, const std::string& where, const SamplingOption& option,
                    int& decided) {
  const auto least = static_cast<int64_t>(option.least);
  const auto most = static_cast<int64_t>(option.most);
  if (const auto found = find_int(json, option.key, where, least, INT64_MAX))
    decided = static_cast<int>(std::min(*found, most));
}

}  // namespace

GenerationConfig::GenerationConfig(const ModelConfig& config, std::string_view generation_json,
                                   std::string_view config_json, const std::string& path)
    : text_(generation_json.empty() ? config_json : generation_json),
      where_(path + (generation_json.empty() ? ": config.json" : ": generation_config.json")),
      config_where_(path + ": config.json"),
      config_eos_(config.eos),
      vocab_(config.vocab) {}

SamplerOptions GenerationConfig::sampler(const GenerationOptions& wanted) const {
  SamplerOptions options;
  const Json json = text_.empty() ? Json::object() : parse_object(text_, where_);
  for (const SamplingOption& option : sampling_options())
    std::visit(
        [&](auto member) {
          using T = decltype(member);
          constexpr bool is_float = std::is_same_v<T, SamplingOption::Number<float>>;
          if constexpr (is_float || std::is_same_v<T, SamplingOption::Number<int>>) {
            auto& decided = options.*member.decided;
            if (wanted.*member.wanted) {
              decided = *(wanted.*member.wanted);
            } else if (option.key != nullptr) {
              decide_by_file(json, where_, option, decided);
            }
          }
        },
        option.member);
  if (!wanted.temperature && !find_bool(json, "do_sample", where_).value_or(true))
    options.temperature = 0;
  check_sampler_options(options);
  // These two values mean that all tokens are kept.
  if (options.top_k == -1) options.top_k = 0;
  if (options.top_n_sigma == 0) options.top_n_sigma = -1;
  if (!wanted.samplers.empty()) set_sampler_order(options, wanted.samplers);
  options.seed = wanted.seed ? *wanted.seed : std::random_device{}();
  biases(wanted);
  return options;
}

std::vector<TokenBias> GenerationConfig::biases(const GenerationOptions& wanted) const {
  std::vector<TokenBias> biases;
  for (const auto& [token, bias] : wanted.logit_bias) {
    if (token < 0 || token >= vocab_ || !(bias <= std::numeric_limits<float>::max()))
      throw Error(ErrorCode::usage, "logit_bias",
                  fmt::format("{} for token {}, expected a number for a token below {}", bias,
                              token, vocab_));
    biases.push_back({token, bias});
  }
  return biases;
}

std::vector<int32_t> GenerationConfig::stop_ids() const {
  if (!text_.empty()) {
    const Json json = parse_object(text_, where_);
    if (const auto ids = find_ids(json, "eos_token_id", where_)) {
      check_ids(*ids, vocab_, where_);
      return *ids;
    }
  }
  check_ids(config_eos_, vocab_, config_where_);
  return config_eos_;
}

}  // namespace walsh
