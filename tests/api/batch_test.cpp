// Tests stop strings, sessions and batches of the public interface.
#include "walsh/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "walsh/error.h"
#include "walsh/stop.h"

namespace walsh {
namespace {

using testing::HasSubstr;

Engine open_small(bool batches = false) {
  EngineOptions options;
  options.device = "cpu";
  options.threads = 2;
  options.context = 256;
  if (batches) options.batch.emplace();
  return Engine::open(std::string(WALSH_SOURCE_DIR) + "/models/walsh-tiny-13m", options);
}

GenerationOptions greedy(int64_t tokens) {
  GenerationOptions options;
  options.temperature = 0;
  options.max_tokens = tokens;
  return options;
}

TEST(StopStrings, EndTheTextAndAreNotPartOfIt) {
  Engine engine = open_small();
  const std::string whole = engine.generate("The river", greedy(16)).text;
  const std::string stop = whole.substr(whole.size() / 2, 5);
  GenerationOptions options = greedy(16);
  options.stop = {"", "no such words", stop};
  std::string streamed;
  const GenerationResult result = engine.generate("The river", options, [&](std::string_view p) {
    streamed += p;
    return true;
  });
  EXPECT_EQ(result.text, whole.substr(0, whole.find(stop)));
  EXPECT_EQ(streamed, result.text);
  EXPECT_EQ(result.reason, FinishReason::stop_string);
  EXPECT_EQ(result.stop, stop);
  options.stop = {"no such words"};
  const GenerationResult other = engine.generate("The river", options);
  EXPECT_EQ(other.text, whole) << "what was held back comes at the end";
  EXPECT_EQ(other.reason, FinishReason::max_tokens);
  EXPECT_EQ(other.stop, "");
}

TEST(TextSession, EvaluatesOnlyWhatIsNewAndDoesNotDisturbOthers) {
  Engine engine = open_small();
  const std::string lone = engine.generate("In the evening", greedy(8)).text;
  TextSession first(engine), second(engine, 64);
  EXPECT_EQ(first.context(), 256);
  EXPECT_EQ(second.context(), 64);
  const GenerationResult one = first.generate("The river", greedy(8));
  EXPECT_EQ(one.cached_tokens, 0);
  EXPECT_EQ(second.generate("In the evening", greedy(8)).text, lone);
  const GenerationResult two = first.generate("The river" + one.text + " and", greedy(8));
  EXPECT_GE(two.cached_tokens, one.prompt_tokens);
  EXPECT_EQ(two.text, engine.generate("The river" + one.text + " and", greedy(8)).text);
  EXPECT_GE(static_cast<int64_t>(first.tokens().size()), two.prompt_tokens);
  first.reset();
  EXPECT_TRUE(first.tokens().empty());
  EXPECT_EQ(first.generate("In the evening", greedy(8)).text, lone);
  EXPECT_THROW(TextSession(engine, -1), Error);
}

TEST(TextSession, AnExceptionOfTheCallbackComesOutAsItIs) {
  Engine engine = open_small();
  TextSession session(engine);
  struct Mine {};
  const std::string text = engine.generate("The river", greedy(8)).text;
  EXPECT_THROW(
      session.generate("The river", greedy(8), [](std::string_view) -> bool { throw Mine(); }),
      Mine);
  const GenerationResult again = session.generate("The river", greedy(8));
  EXPECT_EQ(again.text, text);
  EXPECT_GT(again.cached_tokens, 0);
}

TEST(Lookup, DraftsFollowAGrammarAndChangeNoText) {
  Engine engine = open_small();
  TextBatch batch(engine);
  GenerationOptions options = greedy(60);
  options.grammar = "root ::= [a-z ]+";
  const std::string prompt = "the river the river the river the river the";
  const GenerationResult plain = engine.generate(prompt, options);
  options.lookup = true;
  const GenerationResult looked_up = engine.generate(prompt, options);
  EXPECT_EQ(looked_up.text, plain.text);
  EXPECT_EQ(plain.drafted, 0);
  EXPECT_GT(looked_up.drafted_right, 0);
  const GenerationResult together = batch.generate(std::vector<std::string>{prompt}, options)[0];
  EXPECT_EQ(together.text, plain.text);
  EXPECT_GT(together.drafted_right, 0);
}

TEST(DraftModel, GuessesForAllTextsAndChangesNone) {
  Engine plain = open_small();
  EngineOptions options;
  options.device = "cpu";
  options.threads = 2;
  options.context = 256;
  options.cache_keys = "q8_0";
  options.cache_values = "q8_0";
  options.cache_window = 256;  // as f16
  options.draft = std::string(WALSH_SOURCE_DIR) + "/models/walsh-tiny-13m";
  options.batch.emplace();
  Engine drafted = Engine::open(options.draft, options);
  TextBatch batch(drafted);
  TextSession session(drafted);
  int64_t right = 0;
  for (const char* grammar : {"", "root ::= [a-z ]+ \".\""}) {
    GenerationOptions wanted = greedy(40);
    wanted.grammar = grammar;
    wanted.stop = {"no such words"};
    wanted.seed = 3;
    for (const float temperature : {0.0f, 1.0f}) {
      wanted.temperature = temperature;
      const GenerationResult expected = plain.generate("The river", wanted);
      for (const GenerationResult& result :
           {drafted.generate("The river", wanted), session.generate("The river", wanted),
            batch.generate(std::vector<std::string>{"The river", "A city"}, wanted)[0]}) {
        EXPECT_EQ(result.text, expected.text) << grammar << temperature;
        right += result.drafted_right;
      }
      GenerationOptions none = wanted;
      none.max_drafted = 0;
      EXPECT_EQ(drafted.generate("The river", none).drafted, 0);
    }
  }
  EXPECT_GT(right, 0);
}

TEST(DraftModel, HasToHaveTheSameTokens) {
  EngineOptions options;
  options.device = "cpu";
  options.draft = "synthetic:tiny:tq4";
  try {
    Engine::open(std::string(WALSH_SOURCE_DIR) + "/models/walsh-tiny-13m", options);
    FAIL() << "not refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_EQ(e.where(), "synthetic:tiny:tq4");
    EXPECT_THAT(e.reason(), HasSubstr("its tokenizer is not the model's: token "));
  }
}

TEST(TextSession, OutlivesItsEngine) {
  auto engine = std::make_unique<Engine>(open_small());
  TextSession session(*engine);
  const std::string text = engine->generate("The river", greedy(4)).text;
  engine.reset();
  EXPECT_EQ(session.generate("The river", greedy(4)).text, text);
}

TEST(TextBatch, GivesEveryTextWhatItWouldBeAlone) {
  const Engine engine = open_small(true);
  Engine alone = open_small();
  EXPECT_EQ(engine.context(), alone.context());
  BatchOptions few;
  few.running = 2;
  few.waiting = 1;  // the others are added as these end
  TextBatch batch(engine, few);
  const std::vector<std::string> prompts = {"The river", "In the evening", "The city of London is",
                                            "One of them", "The river"};
  GenerationOptions options = greedy(12);
  options.stop = {"the"};
  const auto results = batch.generate(prompts, options);
  ASSERT_EQ(results.size(), prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    const GenerationResult expected = alone.generate(prompts[i], options);
    EXPECT_EQ(results[i].text, expected.text) << prompts[i];
    EXPECT_EQ(results[i].reason, expected.reason) << prompts[i];
    EXPECT_EQ(results[i].stop, expected.stop) << prompts[i];
    EXPECT_EQ(results[i].tokens, expected.tokens) << prompts[i];
    EXPECT_EQ(results[i].prompt_tokens, expected.prompt_tokens) << prompts[i];
  }
  EXPECT_TRUE(batch.generate({}, options).empty());
  std::vector<std::vector<int32_t>> tokens;
  for (const std::string& prompt : prompts)
    tokens.push_back(engine.encode_prompt(prompt));
  std::vector<size_t> ended;
  const auto again = batch.generate_tokens(tokens, options, [&](size_t n) { ended.push_back(n); });
  ASSERT_EQ(again.size(), prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i)
    EXPECT_EQ(again[i].text, results[i].text) << prompts[i];
  EXPECT_EQ(ended, (std::vector<size_t>{1, 2, 3, 4, 5}));
}

TEST(TextBatch, IsFedByOtherThreadsAndStops) {
  const Engine engine = open_small(true);
  TextBatch batch(engine);
  std::atomic<int> ended = 0;
  std::thread steps([&] { batch.run(); });
  std::thread client([&] {
    for (int i = 0; i < 4; ++i)
      batch.add("The river", greedy(4), {}, [&](const GenerationResult& result, const Error*) {
        EXPECT_EQ(result.tokens, 4);
        ++ended;
      });
  });
  client.join();
  while (ended < 4)
    std::this_thread::yield();
  FinishReason reason = FinishReason::max_tokens;
  std::atomic<bool> begun = false;
  const uint64_t endless = batch.add(
      "The river", greedy(-1),
      [&](std::string_view) {
        begun = true;
        return true;
      },
      [&](const GenerationResult& result, const Error*) {
        reason = result.reason;
        ++ended;
      });
  while (!begun)
    std::this_thread::yield();
  batch.cancel(endless);
  while (ended < 5)
    std::this_thread::yield();
  EXPECT_EQ(reason, FinishReason::stopped);
  batch.stop();
  steps.join();
  EXPECT_THROW(batch.add("The river", greedy(4), {}, {}), Error);
}

TEST(TextBatch, FailuresEndTheTextsThatTheyAreOf) {
  const Engine engine = open_small(true);
  TextBatch batch(engine);
  std::string error;
  batch.add(
      "The river", greedy(8),
      [](std::string_view) -> bool { throw std::runtime_error("the callback failed"); },
      [&](const GenerationResult&, const Error* e) { error = e == nullptr ? "none" : e->what(); });
  std::string other;
  batch.add("The river", greedy(8), {},
            [&](const GenerationResult& r, const Error*) { other = r.text; });
  while (batch.step()) {
  }
  EXPECT_THAT(error, HasSubstr("the callback failed"));
  EXPECT_EQ(other, batch.generate(std::vector<std::string>{"The river"}, greedy(8))[0].text);

  GenerationOptions wrong = greedy(8);
  wrong.top_p = 2;
  EXPECT_THROW(batch.add("The river", wrong, {}, {}), Error);
  EXPECT_THROW(batch.add(std::span<const int32_t>(), greedy(1), {}, {}), Error);
  BatchOptions none;
  none.running = 0;
  EXPECT_THROW(TextBatch(engine, none), Error);
  none.running = 1;
  none.kept = -1;
  EXPECT_THROW(TextBatch(engine, none), Error);

  std::atomic<bool> flag = true;
  const StopScope scope(flag);
  try {
    batch.generate(std::vector<std::string>{"The river"}, greedy(8));
    ADD_FAILURE() << "the request to stop was not seen";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::interrupted);
  }
}

}  // namespace
}  // namespace walsh
