#include "generate/generator.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>

#include "base/stop.h"
#include "generate/constraint.h"
#include "generate/ngram.h"
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
  // `known` tokens of the prompt are evaluated.
  virtual int32_t first(std::span<const int32_t> prompt, size_t known) = 0;
  // Whether the text has to end behind the token that came last.
  virtual bool ended() const { return false; }
  // Whether the context has room for the token that came last.
  virtual bool can_continue() const = 0;
  // The token after `token`, which came last.
  virtual int32_t next(int32_t token) = 0;
  virtual void report(GenerateResult&) const {}
};

// Logits come to the host, which samples.
class HostTokens : public TokenSource {
 public:
  HostTokens(Session& session, const GenerateOptions& options)
      : session_(session), sampler_(options.sampler, options.biases, options.breakers) {
    if (options.grammar) constraint_.emplace(options.grammar, options.stop_ids);
  }

  int32_t first(std::span<const int32_t> prompt, size_t known) override {
    for (const int32_t token : prompt)
      sampler_.read(token);
    int32_t chosen = 0;
    const std::span<const int32_t> rest = prompt.subspan(known);
    session_.forward(
        rest, [&](int64_t, std::span<const float> logits) { chosen = choose(logits); },
        static_cast<int64_t>(rest.size()) - 1);
    return chosen;
  }
  bool ended() const override { return constraint_ && constraint_->ended(); }
  bool can_continue() const override { return session_.position() < session_.capacity(); }
  int32_t next(int32_t token) override {
    sampler_.accept(token);
    int32_t chosen = 0;
    session_.forward({&token, 1},
                     [&](int64_t, std::span<const float> logits) { chosen = choose(logits); });
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

 protected:
  Session& session_;
  Sampler sampler_;
  std::optional<Constraint> constraint_;
};

// The same with drafts: what is chosen behind each token of a draft is what would be chosen without
// it, as long as the tokens before it were right.
class LookedUpTokens : public HostTokens {
 public:
  LookedUpTokens(Session& session, const GenerateOptions& options)
      : HostTokens(session, options), most_(options.max_tokens) {}
  // Takes tokens back that nobody asked for any more.
  ~LookedUpTokens() override {
    if (!ahead_.empty())
      session_.truncate(session_.position() - static_cast<int64_t>(ahead_.size()));
  }

  int32_t first(std::span<const int32_t> prompt, size_t known) override {
    for (const int32_t token : prompt)
      draft_.add(token);
    given_ = 1;
    return HostTokens::first(prompt, known);
  }
  bool can_continue() const override { return !ahead_.empty() || HostTokens::can_continue(); }

  int32_t next(int32_t token) override {
    if (ahead_.empty()) evaluate(token);
    const int32_t chosen = ahead_.front();
    ahead_.pop_front();
    ++given_;
    return chosen;
  }
  void report(GenerateResult& result) const override {
    result.drafted = drafted_;
    result.drafted_right = right_;
  }

 private:
  void take(int32_t token) {
    sampler_.accept(token);
    draft_.add(token);
  }

  void evaluate(int32_t token) {
    take(token);
    // One token comes without a draft.
    int64_t room = session_.capacity() - session_.position() - 1;
    room = std::min(room, session_.max_rows() - 1);
    if (most_ >= 0) room = std::min(room, most_ - given_ - 1);
    const std::vector<int32_t> drafted = draft_.draft(std::max<int64_t>(0, room));
    std::vector<int32_t> tokens = {token};
    tokens.insert(tokens.end(), drafted.begin(), drafted.end());
    const int64_t before = session_.position();
    bool right = true;
    const auto choose = [&](int64_t index, std::span<const float> logits) {
      if (!right) return;
      const int32_t chosen = sampler_.sample(logits);
      ahead_.push_back(chosen);
      const auto i = static_cast<size_t>(index);
      right = i < drafted.size() && drafted[i] == chosen;
      if (right) take(chosen);
    };
    try {
      session_.forward(tokens, choose);
    } catch (...) {  // the session is no longer what was chosen from
      ahead_.clear();
      throw;
    }
    session_.truncate(before + static_cast<int64_t>(ahead_.size()));
    if (drafted.empty()) return;
    draft_.judge(drafted.size(), ahead_.size() - 1);
    drafted_ += static_cast<int64_t>(drafted.size());
    right_ += static_cast<int64_t>(ahead_.size()) - 1;
  }

  NgramDraft draft_;
  std::deque<int32_t> ahead_;  // chosen and not yet given
  const int64_t most_;
  int64_t given_ = 0, drafted_ = 0, right_ = 0;
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

  int32_t first(std::span<const int32_t> prompt, size_t known) override {
    session_.start_sampling(options_, prompt);
    session_.submit(prompt.subspan(known));
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
  if (options.lookup && session.rewinds() && !options.grammar)
    return std::make_unique<LookedUpTokens>(session, options);
  if (session.can_sample() && options.sampler.on_devices() && !options.grammar &&
      options.biases.empty())
    return std::make_unique<DeviceTokens>(session, options.sampler, options.max_tokens);
  return std::make_unique<HostTokens>(session, options);
}

// The callback decides for itself: a request to stop would end it half-way, and its token be lost.
bool wanted(const TokenCallback& callback, int32_t token) {
  const StopScope whole(kNotStopped);
  return !callback || callback(token);
}

void continue_text(TokenSource& source, std::span<const int32_t> prompt,
                   const GenerateOptions& options, const TokenCallback& callback,
                   GenerateResult& result) {
  result.prompt_tokens = static_cast<int64_t>(prompt.size());
  auto start = Clock::now();
  check_stop();  // a GPU does not look at it
  int32_t token = source.first(prompt, static_cast<size_t>(options.known));
  result.prompt_seconds = seconds_since(start);
  if (options.max_tokens == 0) return;
  for (;;) {
    const auto& stops = options.stop_ids;
    if (token == kNoToken || std::find(stops.begin(), stops.end(), token) != stops.end()) {
      result.reason = StopReason::stop_token;
      return;
    }
    result.tokens.push_back(token);
    if (!wanted(callback, token)) {
      result.reason = StopReason::callback;
      return;
    }
    if (source.ended()) {
      result.reason = StopReason::stop_token;
      return;
    }
    if (static_cast<int64_t>(result.tokens.size()) == options.max_tokens) return;
    if (!source.can_continue()) {
      result.reason = StopReason::context_full;
      return;
    }
    start = Clock::now();
    try {
      check_stop();
      token = source.next(token);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::interrupted) throw;
      result.reason = StopReason::callback;
      result.intact = false;
      return;
    }
    result.decode_seconds += seconds_since(start);
    ++result.decoded_tokens;
  }
}

}  // namespace

GenerateResult generate(Session& session, std::span<const int32_t> prompt,
                        const GenerateOptions& options, const TokenCallback& callback) {
  if (options.known < 0 || options.known >= static_cast<int64_t>(prompt.size()))
    throw Error(ErrorCode::usage, "prompt", "has no tokens");
  const std::unique_ptr<TokenSource> source = token_source(session, options);
  GenerateResult result;
  continue_text(*source, prompt, options, callback, result);
  source->report(result);
  return result;
}

}  // namespace walsh
