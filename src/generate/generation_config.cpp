#include "generate/generation_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <random>

#include "generate/sampler.h"
#include "io/json.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr double kMost = 1000;  // of a temperature and a penalty, as check_sampler_options

Json parse_object(std::string_view text, const std::string& where) {
  Json json = parse_json(text, where);
  if (json.is_object()) return json;
  throw Error(ErrorCode::bad_input, where,
              fmt::format("found {}, expected an object", describe_json(json)));
}

// The ids must be those of a vocabulary of that size.
void check_ids(const std::vector<int32_t>& ids, int64_t vocab, const std::string& where) {
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocab) continue;
    throw Error(ErrorCode::bad_input, where,
                fmt::format("'eos_token_id' is {}, expected ids below {}", id, vocab));
  }
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
  options.repeat_last_n = wanted.repeat_last_n;
  options.presence_penalty = wanted.presence_penalty;
  options.frequency_penalty = wanted.frequency_penalty;
  options.top_n_sigma = wanted.top_n_sigma;
  options.xtc_probability = wanted.xtc_probability;
  options.xtc_threshold = wanted.xtc_threshold;
  options.dry_multiplier = wanted.dry_multiplier;
  options.dry_base = wanted.dry_base;
  options.dry_allowed_length = wanted.dry_allowed_length;
  options.dry_penalty_last_n = wanted.dry_penalty_last_n;
  if (!wanted.samplers.empty()) set_sampler_order(options, wanted.samplers);
  options.seed = wanted.seed ? *wanted.seed : std::random_device{}();
  const Json json = text_.empty() ? Json::object() : parse_object(text_, where_);
  const auto take = [&](const std::optional<float>& given, const char* key, double min, double max,
                        float& value) {
    const auto found = given ? std::nullopt : find_number(json, key, where_, min, max);
    value = given.value_or(found ? static_cast<float>(*found) : value);
  };
  take(wanted.temperature, "temperature", 0, kMost, options.temperature);
  take(wanted.top_p, "top_p", 0, 1, options.top_p);
  take(wanted.min_p, "min_p", 0, 1, options.min_p);
  take(wanted.typical_p, "typical_p", 0, 1, options.typical_p);
  take(wanted.repeat_penalty, "repetition_penalty", 1e-6, kMost, options.repeat_penalty);
  if (wanted.top_k) {
    options.top_k = *wanted.top_k;
  } else if (const auto k =
                 find_int(json, "top_k", where_, -1, std::numeric_limits<int64_t>::max())) {
    options.top_k = static_cast<int>(std::clamp<int64_t>(*k, 0, 1 << 30));
  }
  if (!wanted.temperature && !find_bool(json, "do_sample", where_).value_or(true))
    options.temperature = 0;
  check_sampler_options(options);
  return options;
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
