// Tests texts that go on when they have filled their context.
#include <gtest/gtest.h>

#include "model/model_support.h"
#include "synthetic_model.h"
#include "texts.h"
#include "threads.h"

namespace walsh {
namespace {

using test::finish;
using test::Recorder;

class ShiftTest : public testing::Test {
 protected:
  Model load(const char* cache) { return test::synthetic_model(pool_, cache); }
  static TextRequest request(int64_t prompt, int64_t max_tokens, int64_t keep) {
    TextRequest wanted;
    wanted.prompt = test::random_tokens(prompt, 500, 1);
    wanted.max_tokens = max_tokens;
    wanted.sampler.temperature = 0;
    wanted.shifts = true;
    wanted.keep = keep;
    return wanted;
  }
  static std::shared_ptr<Recorder> run(const Model& model, TextRequest wanted,
                                       bool lookup = false) {
    SchedulerOptions options;
    options.positions = kContext;
    options.running = 2;
    options.step_tokens = 48;
    options.lookup = lookup;
    Scheduler scheduler(model, options);
    const auto sink = std::make_shared<Recorder>();
    scheduler.add(std::move(wanted), sink);
    finish(scheduler);
    EXPECT_TRUE(sink->end.has_value()) << (sink->error ? sink->error->what() : "");
    return sink;
  }
  // Continues a text by its definition: whenever the context is full, a new text begins with what
  // stays of it.
  static std::vector<int32_t> by_definition(const Model& model, const TextRequest& wanted) {
    std::vector<int32_t> text = wanted.prompt, all;
    const auto kept = std::min<int64_t>(wanted.keep, kContext / 2);
    while (std::ssize(all) < wanted.max_tokens) {
      TextRequest part = wanted;
      part.prompt = text;
      part.max_tokens =
          std::min(wanted.max_tokens - std::ssize(all), kContext + 1 - std::ssize(text));
      const std::vector<int32_t> more = test::plain_text(model, part, kContext);
      all.insert(all.end(), more.begin(), more.end());
      text.insert(text.end(), more.begin(), more.end());
      text.erase(text.begin() + kept, text.begin() + kept + (std::ssize(text) - kept) / 2);
    }
    return all;
  }

  static constexpr int64_t kContext = 96;
  ThreadPool pool_{test::kThreads};
};

TEST_F(ShiftTest, ATextGoesOnExactlyAsOneThatBeginsWithWhatStays) {
  for (const char* cache : {"f16", "q8_0", "kt3"}) {
    const Model model = load(cache);
    for (const int64_t keep : {0, 10, 500}) {
      TextRequest wanted = request(30, 200, keep);
      const auto found = run(model, wanted);
      wanted.keep = std::min<int64_t>(keep, 30);
      EXPECT_EQ(found->tokens, by_definition(model, wanted)) << cache << keep;
      EXPECT_EQ(found->end->reason, StopReason::max_tokens);
      EXPECT_GT(found->end->dropped, 100);
    }
  }
}

TEST_F(ShiftTest, RecurrentModelsDoSo) {
  const Model model = test::load_folder(test::tiny_model("qwen35-tiny"), pool_);
  TextRequest wanted = request(30, 150, 8);
  for (int32_t& token : wanted.prompt)
    token %= static_cast<int32_t>(model.config.vocab);
  EXPECT_EQ(run(model, wanted)->tokens, by_definition(model, wanted));
}

TEST_F(ShiftTest, GuessedTextsAreTheSame) {
  const Model model = load("f16");
  const TextRequest wanted = request(30, 200, 10);
  EXPECT_EQ(run(model, wanted, true)->tokens, run(model, wanted)->tokens);
}

TEST_F(ShiftTest, WithoutItTheTextEnds) {
  const Model model = load("f16");
  TextRequest wanted = request(30, 200, 10);
  wanted.shifts = false;
  const auto found = run(model, wanted);
  EXPECT_EQ(found->end->reason, StopReason::context_full);
  EXPECT_EQ(found->tokens.size(), static_cast<size_t>(kContext - 30 + 1));
}

TEST_F(ShiftTest, TheMiddleOfALongPromptIsCut) {
  const Model model = load("f16");
  TextRequest wanted = request(300, 4, 10);
  const auto found = run(model, wanted);
  const auto dropped = found->end->dropped;
  EXPECT_EQ(dropped % ((kContext - 10) / 2), 0);
  EXPECT_EQ(found->end->prompt_tokens, 300 - dropped);
  EXPECT_LE(found->end->prompt_tokens, kContext);
  wanted.prompt.erase(wanted.prompt.begin() + 10, wanted.prompt.begin() + 10 + dropped);
  EXPECT_EQ(found->tokens, run(model, wanted)->tokens);
}

}  // namespace
}  // namespace walsh
