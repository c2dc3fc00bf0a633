#include "generate/generator.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "generate/constraint.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Instead of a token: the text can only end.
constexpr int32_t kNoToken = -1;

// Where the next tokens come from.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int32_t first(std::span<const int32_t> prompt) = 0;
  // Whether the text has to end behind the token that came last.
  virtual bool ended() const { return false; }
  // Whether the context has room for the token that came last.
  virtual bool can_continue() const = 0;
  // The token after `token`, which came last.
  virtual int32_t next(int32_t token) = 0;
};

// Logits come to the host, which samples.
class HostTokens : public TokenSource {
 public:
  HostTokens(Session& session, const GenerateOptions& options)
      : session_(session), sampler_(options.sampler) {
    if (options.grammar) constraint_.emplace(options.grammar, options.stop_ids);
  }

  int32_t first(std::span<const int32_t> prompt) override {
    for (const int32_t token : prompt)
      sampler_.read(token);
    return evaluate(prompt);
  }
  bool ended() const override { return constraint_ && constraint_->ended(); }
  bool can_continue() const override { return session_.position() < session_.capacity(); }
  int32_t next(int32_t token) override {
    sampler_.accept(token);
    return evaluate({&token, 1});
  }

 private:
  int32_t evaluate(std::span<const int32_t> tokens) {
    int32_t chosen = 0;
    const int64_t last = static_cast<int64_t>(tokens.size()) - 1;
    session_.forward(
        tokens, [&](int64_t, std::span<const float> logits) { chosen = choose(logits); }, last);
    return chosen;
  }
  int32_t choose(std::span<const float> logits) {
    if (!constraint_) return sampler_.sample(logits);
    const auto allowed = constraint_->allowed(logits);
    if (allowed.empty()) return kNoToken;
    const int32_t token = sampler_.sample(allowed);
    constraint_->accept(token);
    return token;
  }

  Session& session_;
  Sampler sampler_;
  std::optional<Constraint> constraint_;
};

// The device samples, and goes on with its own token while the host looks at it.
class DeviceTokens : public TokenSource {
 public:
  // `max_tokens` as in GenerateOptions.
  DeviceTokens(Session& session, const SamplerOptions& options, int64_t max_tokens)
      : session_(session), options_(options), max_tokens_(max_tokens) {
    check_sampler_options(options);
  }
  // A step that nobody asked for any more is taken back. A device that has failed says so again.
  ~DeviceTokens() override {
    if (!ahead_) return;
    try {
      session_.take();
      session_.truncate(session_.position() - 1);
    } catch (const Error&) {
    }
  }

  int32_t first(std::span<const int32_t> prompt) override {
    session_.start_sampling(options_, prompt);
    session_.submit(prompt);
    return take();
  }
  bool can_continue() const override { return ahead_; }
  int32_t next(int32_t) override {
    ahead_ = false;
    return take();
  }

 private:
  int32_t take() {
    ++given_;
    if ((max_tokens_ < 0 || given_ < max_tokens_) && session_.position() < session_.capacity()) {
      session_.submit_chosen();
      ahead_ = true;
    }
    const int32_t token = session_.take()[0];
    if (token >= 0) return token;
    throw Error(ErrorCode::bad_input, "logits", "the model computed no finite logit");
  }

  Session& session_;
  SamplerOptions options_;
  int64_t max_tokens_, given_ = 0;
  bool ahead_ = false;
};

std::unique_ptr<TokenSource> token_source(Session& session, const GenerateOptions& options) {
  if (session.can_sample() && options.sampler.on_devices() && !options.grammar)
    return std::make_unique<DeviceTokens>(session, options.sampler, options.max_tokens);
  return std::make_unique<HostTokens>(session, options);
}

}  // namespace

GenerateResult generate(Session& session, std::span<const int32_t> prompt,
                        const GenerateOptions& options, const TokenCallback& callback) {
  if (prompt.empty()) throw Error(ErrorCode::usage, "prompt", "has no tokens");
  const std::unique_ptr<TokenSource> source = token_source(session, options);
  GenerateResult result;
  result.prompt_tokens = static_cast<int64_t>(prompt.size());
  auto start = Clock::now();
  int32_t token = source->first(prompt);
  result.prompt_seconds = seconds_since(start);
  if (options.max_tokens == 0) return result;
  for (;;) {
    const auto& stops = options.stop_ids;
    if (token == kNoToken || std::find(stops.begin(), stops.end(), token) != stops.end()) {
      result.reason = StopReason::stop_token;
      return result;
    }
    result.tokens.push_back(token);
    if (callback && !callback(token)) {
      result.reason = StopReason::callback;
      return result;
    }
    if (source->ended()) {
      result.reason = StopReason::stop_token;
      return result;
    }
    if (static_cast<int64_t>(result.tokens.size()) == options.max_tokens) return result;
    if (!source->can_continue()) {
      result.reason = StopReason::context_full;
      return result;
    }
    start = Clock::now();
    try {
      token = source->next(token);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::interrupted) throw;
      result.reason = StopReason::callback;
      return result;
    }
    result.decode_seconds += seconds_since(start);
    ++result.decoded_tokens;
  }
}

}  // namespace walsh
