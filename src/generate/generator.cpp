#include "generate/generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "io/json.h"

namespace walsh {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Evaluates tokens and samples from the logits of the last one.
int32_t next_token(Session& session, std::span<const int32_t> tokens, Sampler& sampler) {
  int32_t next = 0;
  const int64_t last = static_cast<int64_t>(tokens.size()) - 1;
  session.forward(
      tokens, [&](int64_t, std::span<const float> logits) { next = sampler.sample(logits); }, last);
  return next;
}

}  // namespace

GenerateResult generate(Session& session, std::span<const int32_t> prompt,
                        const GenerateOptions& options, const TokenCallback& callback) {
  if (prompt.empty()) throw Error(ErrorCode::usage, "prompt", "has no tokens");
  Sampler sampler(options.sampler);
  for (int32_t token : prompt)
    sampler.accept(token);
  GenerateResult result;
  result.prompt_tokens = static_cast<int64_t>(prompt.size());
  auto start = Clock::now();
  int32_t token = next_token(session, prompt, sampler);
  result.prompt_seconds = seconds_since(start);
  for (;;) {
    const auto& stops = options.stop_ids;
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
      result.reason = StopReason::stop_token;
      return result;
    }
    result.tokens.push_back(token);
    sampler.accept(token);
    if (callback && !callback(token)) {
      result.reason = StopReason::callback;
      return result;
    }
    if (static_cast<int64_t>(result.tokens.size()) == options.max_tokens) return result;
    if (session.position() == session.capacity()) {
      result.reason = StopReason::context_full;
      return result;
    }
    start = Clock::now();
    token = next_token(session, {&token, 1}, sampler);
    result.decode_seconds += seconds_since(start);
    ++result.decoded_tokens;
  }
}

std::vector<int32_t> stop_ids(const ModelConfig& config, std::string_view generation_config,
                              std::string_view where) {
  if (generation_config.empty()) return config.eos;
  const Json json = parse_json(generation_config, where);
  const auto found = json.is_object() ? json.find("eos_token_id") : json.end();
  if (found == json.end() || found->is_null()) return config.eos;
  const Json list = found->is_array() ? *found : Json::array({*found});
  std::vector<int32_t> ids;
  for (const Json& id : list) {
    if (!id.is_number_integer() || id < 0 || id >= config.vocab) {
      throw Error(ErrorCode::bad_input, std::string(where),
                  fmt::format("'eos_token_id' is {}, expected ids below {}", describe_json(id),
                              config.vocab));
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

}  // namespace walsh
