#include "generate/generator.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>

#include "base/stop.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Returned instead of a token if the text can only end.
constexpr int32_t kNoToken = -1;

// Produces the next tokens.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  // The first `known` tokens of the prompt are in the session already.
  virtual int32_t first(std::span<const int32_t> prompt, size_t known,
                        const TextProgress& progress) = 0;
  // Whether the text has to end after the latest token.
  virtual bool ended() const { return false; }
  // Returns the token after `token`, the latest one. There is room for it.
  virtual int32_t next(int32_t token, const TextProgress& progress) = 0;
  virtual void report(GenerateResult&) const {}
};

// Logits come to the host, which chooses; with drafts several tokens at once. What is chosen behind
// each token of a draft is what would be chosen without it, as long as the tokens before it were
// right.
class HostTokens : public TokenSource {
 public:
  HostTokens(Session& session, const GenerateOptions& options, bool lookup)
      : session_(session), chooser_(options, lookup) {}
  // Takes tokens back that nobody asked for any more.
  ~HostTokens() override {
    if (!ahead_.empty())
      session_.truncate(session_.position() - static_cast<int64_t>(ahead_.size()));
  }

  int32_t first(std::span<const int32_t> prompt, size_t known, const TextProgress&) override {
    for (const int32_t token : prompt)
      chooser_.read(token);
    const std::span<const int32_t> rest = prompt.subspan(known);
    session_.forward(
        rest, [&](int64_t, std::span<const float> logits) { choose(logits); },
        static_cast<int64_t>(rest.size()) - 1);
    return take();
  }
  bool ended() const override { return chooser_.ended(); }
  int32_t next(int32_t token, const TextProgress& progress) override {
    if (ahead_.empty()) evaluate(token, progress);
    return take();
  }
  void report(GenerateResult& result) const override {
    result.drafted = drafted_;
    result.drafted_right = right_;
  }

 private:
  void choose(std::span<const float> logits) {
    ahead_.push_back(chooser_.choose(logits).value_or(kNoToken));
  }

  int32_t take() {
    const int32_t token = ahead_.front();
    ahead_.pop_front();
    return token;
  }

  void evaluate(int32_t token, const TextProgress& progress) {
    // One row of the batch is that of the token itself.
    const int64_t room = std::min(progress.draft_room(), session_.max_rows() - 1);
    const size_t drafted = chooser_.draft(room).size();
    std::vector<int32_t> tokens = {token};
    tokens.insert(tokens.end(), chooser_.drafted().begin(), chooser_.drafted().end());
    const int64_t before = session_.position();
    try {
      session_.forward(tokens, [&](int64_t, std::span<const float> logits) {
        if (chooser_.is_right()) choose(logits);
      });
    } catch (...) {  // the session is no longer what was chosen from
      ahead_.clear();
      throw;
    }
    if (drafted == 0) return;
    session_.truncate(before + static_cast<int64_t>(ahead_.size()));
    const size_t right = ahead_.size() - 1;
    chooser_.judge(right);
    drafted_ += static_cast<int64_t>(drafted);
    right_ += static_cast<int64_t>(right);
  }

  Session& session_;
  TextChooser chooser_;
  std::deque<int32_t> ahead_;  // chosen and not yet given
  int64_t drafted_ = 0, right_ = 0;
};

// Sampling on the device, which continues with its own token while the host processes it.
class DeviceTokens : public TokenSource {
 public:
  DeviceTokens(Session& session, const SamplerOptions& options)
      : session_(session), options_(options) {
    check_sampler_options(options);
  }
  // Takes back a step that is no longer needed. If the device failed, it reports that again.
  ~DeviceTokens() override {
    if (!ahead_) return;
    try {
      session_.take();
      session_.truncate(session_.position() - 1);
    } catch (const Error&) {
    }
  }

  int32_t first(std::span<const int32_t> prompt, size_t known,
                const TextProgress& progress) override {
    session_.start_sampling(options_, prompt);
    session_.submit(prompt.subspan(known));
    return take(progress);
  }
  int32_t next(int32_t, const TextProgress& progress) override {
    ahead_ = false;
    return take(progress);
  }

 private:
  int32_t take(TextProgress progress) {
    ++progress.chosen;
    ++progress.positions;
    if (!progress.end(true, false)) {
      session_.submit_chosen();
      ahead_ = true;
    }
    const int32_t token = session_.take()[0];
    if (token >= 0) return token;
    throw Error(ErrorCode::bad_input, "logits", "the model computed no finite logit");
  }

  Session& session_;
  SamplerOptions options_;
  bool ahead_ = false;
};

std::unique_ptr<TokenSource> token_source(Session& session, const GenerateOptions& options) {
  const bool lookup = options.lookup && session.rewinds() && !options.grammar;
  if (!lookup && session.can_sample() && options.on_devices())
    return std::make_unique<DeviceTokens>(session, options.sampler);
  return std::make_unique<HostTokens>(session, options, lookup);
}

// Calls the callback without stop requests, which would interrupt it half-way and lose its token.
bool wanted(const TokenCallback& callback, int32_t token) {
  const StopScope whole(kNotStopped);
  return !callback || callback(token);
}

void continue_text(TokenSource& source, TextProgress progress, std::span<const int32_t> prompt,
                   const GenerateOptions& options, const TokenCallback& callback,
                   GenerateResult& result) {
  result.prompt_tokens = static_cast<int64_t>(prompt.size());
  auto start = Clock::now();
  check_stop();  // a GPU does not look at it
  int32_t token = source.first(prompt, static_cast<size_t>(options.known), progress);
  result.prompt_seconds = seconds_since(start);
  if (options.max_tokens == 0) return;
  for (;;) {
    if (token == kNoToken || options.stops(token)) {
      result.reason = StopReason::stop_token;
      return;
    }
    result.tokens.push_back(token);
    ++progress.chosen;
    ++progress.positions;
    if (const auto end = progress.end(wanted(callback, token), source.ended())) {
      result.reason = *end;
      return;
    }
    start = Clock::now();
    try {
      check_stop();
      token = source.next(token, progress);
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
  TextProgress progress;
  progress.max_tokens = options.max_tokens;
  progress.capacity = session.capacity();
  progress.positions = session.position() - options.known + std::ssize(prompt);
  GenerateResult result;
  continue_text(*source, progress, prompt, options, callback, result);
  source->report(result);
  return result;
}

}  // namespace walsh
