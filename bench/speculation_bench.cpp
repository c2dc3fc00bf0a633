// Measures tokens per second of one greedy text with a draft model of which a given share of the
// guesses is right, whatever both models say. This shows what guessing gains by its costs alone.
//
// bench_speculation MODEL DRAFT [cpu|cuda] [SHARE...]
//
// The draft model does its work, then its guesses are replaced by the tokens that the model will
// choose, which another session finds outside of the measured time, or by other tokens as often as
// the share demands. Models may be synthetic, such as synthetic:8b:itq3_s and synthetic:1b:tq4.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "api/load.h"
#include "base/random.h"
#include "generate/model_drafts.h"
#include "schedule/scheduler.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr int64_t kPositions = 1024, kPrompt = 128, kTokens = 256;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Told : public DraftSource {
 public:
  Told(const Model& model, DraftSource& source, double share)
      : source_(source), session_(model, SessionOptions{kPositions}), share_(share) {}

  double own_seconds() const { return own_seconds_; }
  void serve(const Model& model) override { source_.serve(model); }
  int64_t begin(std::span<const int32_t> tokens, const std::string& owner) override {
    return source_.begin(tokens, owner);
  }
  void end(int64_t text) override { source_.end(text); }
  void judge(int64_t text, size_t drafted, size_t right) override {
    source_.judge(text, drafted, right);
  }

  void draft(std::span<DraftTask> tasks) override {
    source_.draft(tasks);
    const double start = seconds();
    for (DraftTask& task : tasks)
      if (!task.drafted.empty()) replace(task);
    own_seconds_ += seconds() - start;
  }

 private:
  int32_t next(std::span<const int32_t> tokens) {
    int32_t best = 0;
    session_.forward(
        tokens,
        [&](int64_t, std::span<const float> logits) {
          best =
              static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
        },
        std::ssize(tokens) - 1);
    return best;
  }

  void replace(DraftTask& task) {
    const auto length = std::ssize(task.tokens);
    if (session_.position() >= length) session_.truncate(length - 1);
    int32_t right = next(task.tokens.subspan(static_cast<size_t>(session_.position())));
    for (int32_t& token : task.drafted) {
      const bool hit = random_.uniform() < share_;
      token = hit ? right : (right + 1) % static_cast<int32_t>(session_.model().config.vocab);
      if (!hit) return;
      if (&token != &task.drafted.back()) right = next({&token, 1});
    }
  }

  DraftSource& source_;
  Session session_;
  const double share_;
  Random random_{1};
  double own_seconds_ = 0;
};

class Sink : public RequestSink {
 public:
  bool chosen(const ScoredToken&) override { return true; }
  void ended(const RequestEnd& what) override { end = what; }
  void failed(const Error& error, const RequestEnd&) override { throw error; }
  RequestEnd end;
};

// Returns the tokens per second behind the first token.
double rate_of(const Model& model, DraftSource* drafts, const Told* told, RequestEnd& end) {
  Scheduler scheduler(model, SessionOptions{kPositions}, drafts);
  double rate = 0;
  for (int i = 0; i < 2; ++i) {  // the first text warms up
    TextRequest request;
    Random random(static_cast<uint64_t>(i));
    for (int64_t t = 0; t < kPrompt; ++t)
      request.prompt.push_back(
          static_cast<int32_t>(random.below(static_cast<uint64_t>(model.config.vocab))));
    request.max_tokens = kTokens;
    request.sampler.temperature = 0;
    request.shares_prefix = false;
    const double before = told != nullptr ? told->own_seconds() : 0;
    const auto sink = std::make_shared<Sink>();
    scheduler.add(request, sink);
    while (scheduler.step()) {
    }
    end = sink->end;
    const double own = told != nullptr ? told->own_seconds() - before : 0;
    rate = static_cast<double>(end.decoded_tokens) / (end.decode_seconds - own);
  }
  return rate;
}

int measure(int argc, char** argv) {
  ThreadPool pool(0);
  LoadOptions options;
  options.pool = &pool;
  options.device = parse_device(argc > 3 ? argv[3] : "cpu");
  options.use.max_positions = kPositions;
  options.use.sequences = 1;
  const auto model_source = open_weights(argv[1], nullptr, pool);
  const auto draft_source = open_weights(argv[2], nullptr, pool);
  const Model draft = load_weights(*draft_source, options);
  const Model model = load_weights(*model_source, options);
  RequestEnd end;
  const double plain = rate_of(model, nullptr, nullptr, end);
  fmt::print("without: {:.1f} tokens/s\n", plain);
  for (int i = 4; i < std::max(argc, 5); ++i) {
    const double share = argc > 4 ? std::atof(argv[i]) : 0.7;
    ModelDrafts drafts(draft, 1, kPositions);
    Told told(model, drafts, share);
    const double rate = rate_of(model, &told, &told, end);
    fmt::print("share {:.2f}: {:.1f} tokens/s, {:.2f} times; {} of {} right\n", share, rate,
               rate / plain, end.drafted_right, end.drafted);
  }
  return 0;
}

}  // namespace
}  // namespace walsh

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "bench_speculation MODEL DRAFT [cpu|cuda] [SHARE...]\n");
    return 2;
  }
  try {
    return walsh::measure(argc, argv);
  } catch (const walsh::Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return walsh::exit_status(e.code());
  }
}
