// Tests texts that are read instead of continued: their states are those of transformers, and the
// same whatever else the scheduler does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "generate/embedding_config.h"
#include "model/golden.h"
#include "texts.h"
#include "threads.h"

namespace walsh {
namespace {

using testing::ElementsAreArray;

// Records what was read.
class Reader : public test::Recorder {
 public:
  void read(std::span<const float> what) override {
    EXPECT_FALSE(finished());
    values.assign(what.begin(), what.end());
  }
  std::vector<float> values;
};

TextRequest reading(std::vector<int32_t> prompt, Reading what) {
  TextRequest request;
  request.prompt = std::move(prompt);
  request.reading = what;
  return request;
}

std::vector<float> read_alone(const Model& model, const TextRequest& request) {
  SessionOptions options;
  options.max_positions = std::max<int64_t>(256, std::ssize(request.prompt) + 64);
  Scheduler scheduler(model, options);
  const auto reader = std::make_shared<Reader>();
  scheduler.add(request, reader);
  test::finish(scheduler);
  EXPECT_TRUE(reader->end && reader->end->reason == StopReason::max_tokens);
  EXPECT_TRUE(reader->tokens.empty());
  return reader->values;
}

void expect_state(const nlohmann::json& golden, const std::vector<float>& found,
                  const std::string& what) {
  const auto values = golden.at("values").get<std::vector<double>>();
  const auto length = golden.at("length").get<double>();
  ASSERT_GE(found.size(), values.size());
  double squares = 0, dot = 0, a = 0, b = 0;
  for (const float v : found)
    squares += double{v} * double{v};
  for (size_t i = 0; i < values.size(); ++i) {
    const double v = found[i];
    EXPECT_NEAR(v, values[i], 1e-3 * length) << what << " value " << i;
    dot += v * values[i];
    a += v * v;
    b += values[i] * values[i];
  }
  EXPECT_NEAR(std::sqrt(squares), length, 1e-3 * length) << what;
  EXPECT_GT(dot / std::sqrt(a * b), 1 - 1e-5) << what;
}

// Written by tools/make_state_goldens.py. Where a rounding chooses another expert, a test of logits
// would fail, too.
TEST(ReadingTest, StatesOfEveryFamilyEqualTransformers) {
  const auto goldens =
      nlohmann::json::parse(test::read_file(std::string(WALSH_TEST_DATA) + "/golden_states.json"));
  ASSERT_GE(goldens.size(), 100u);
  ThreadPool pool(test::kThreads);
  for (const auto& [name, golden] : goldens.items()) {
    const Model model = test::load_folder(test::tiny_model(name), pool);
    const std::vector<int32_t> tokens = test::read_golden(name).tokens;
    expect_state(golden.at("last"), read_alone(model, reading(tokens, Reading::last)), name);
    expect_state(golden.at("mean"), read_alone(model, reading(tokens, Reading::mean)),
                 name + " mean");
  }
}

class ReadingOfOneModel : public testing::Test {
 protected:
  ReadingOfOneModel() : model_(test::load_folder(test::tiny_model("qwen3-tiny"), pool_)) {}

  static SchedulerOptions options() {
    SchedulerOptions options;
    options.positions = 200;
    options.running = 4;
    options.waiting = 50;
    options.step_tokens = 24;
    options.kept = 3;
    return options;
  }
  static std::vector<int32_t> text(int64_t length, uint64_t seed) {
    return test::random_tokens(length, 150, seed);
  }

  ThreadPool pool_{test::kThreads};
  Model model_;
};

// Lengths from one token to several steps; others are generated meanwhile.
TEST_F(ReadingOfOneModel, TextsOfOtherLengthsTogetherGiveWhatEachGivesAlone) {
  for (const Reading what : {Reading::last, Reading::mean, Reading::cls, Reading::logits}) {
    Scheduler scheduler(model_, options());
    const auto written = std::make_shared<test::Recorder>();
    TextRequest written_request;
    written_request.prompt = text(30, 99);
    written_request.max_tokens = 20;
    written_request.sampler.temperature = 0;
    scheduler.add(written_request, written);
    std::vector<TextRequest> requests;
    std::vector<std::shared_ptr<Reader>> readers;
    for (const int64_t length : {1, 2, 7, 24, 25, 60, 130, 3, 1, 90}) {
      requests.push_back(reading(text(length, static_cast<uint64_t>(length)), what));
      readers.push_back(std::make_shared<Reader>());
      scheduler.add(requests.back(), readers.back());
    }
    test::finish(scheduler);
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(readers[i]->end) << i;
      EXPECT_EQ(readers[i]->end->tokens, 0);
      EXPECT_EQ(readers[i]->end->prompt_tokens, std::ssize(requests[i].prompt));
      EXPECT_THAT(readers[i]->values, ElementsAreArray(read_alone(model_, requests[i])))
          << "reading " << int{static_cast<uint8_t>(what)} << " of " << requests[i].prompt.size();
    }
    EXPECT_THAT(written->tokens, ElementsAreArray(test::plain_text(model_, written_request, 200)));
  }
}

TEST_F(ReadingOfOneModel, AStateIsTheSameBehindAPrefixThatWasKept) {
  Scheduler scheduler(model_, options());
  std::vector<int32_t> longer = text(80, 5);
  const std::vector<int32_t> shorter(longer.begin(), longer.begin() + 50);
  for (const Reading what : {Reading::last, Reading::mean, Reading::cls}) {
    for (const auto& prompt : {shorter, longer}) {
      const auto reader = std::make_shared<Reader>();
      scheduler.add(reading(prompt, what), reader);
      test::finish(scheduler);
      ASSERT_TRUE(reader->end);
      EXPECT_EQ(reader->end->cached_tokens > 0, what == Reading::last && prompt == longer)
          << "reading " << int{static_cast<uint8_t>(what)} << ' ' << prompt.size();
      EXPECT_THAT(reader->values, ElementsAreArray(read_alone(model_, reading(prompt, what))));
    }
    scheduler.forget();
  }
}

// Texts that are preempted begin anew.
TEST_F(ReadingOfOneModel, ATextThatIsPreemptedGivesTheSame) {
  SchedulerOptions tight = options();
  tight.cache_positions = 200;
  tight.step_tokens = 64;
  Scheduler scheduler(model_, tight);
  std::vector<std::shared_ptr<Reader>> readers;
  std::vector<TextRequest> requests;
  const auto written = std::make_shared<test::Recorder>();
  TextRequest long_text;
  long_text.prompt = text(40, 1);
  long_text.max_tokens = 120;
  long_text.sampler.temperature = 0;
  scheduler.add(long_text, written);
  for (uint64_t i = 0; i < 6; ++i) {
    requests.push_back(reading(text(90, 10 + i), Reading::mean));
    readers.push_back(std::make_shared<Reader>());
    scheduler.add(requests.back(), readers.back());
  }
  test::finish(scheduler);
  for (size_t i = 0; i < readers.size(); ++i)
    EXPECT_THAT(readers[i]->values, ElementsAreArray(read_alone(model_, requests[i]))) << i;
  EXPECT_TRUE(written->end);
}

TEST(EmbeddingConfigTest, ReadsPoolingAndLength) {
  EXPECT_EQ(read_embedding_config("", "m").pooling, Reading::last);
  EXPECT_TRUE(read_embedding_config("", "m").normalize);
  const auto mean = read_embedding_config(R"({"pooling":"mean","normalize":false})", "m");
  EXPECT_EQ(mean.pooling, Reading::mean);
  EXPECT_FALSE(mean.normalize);
  for (const char* bad : {"[]", "{}", R"({"pooling":"max","normalize":true})",
                          R"({"pooling":"last","normalize":1})", R"({"pooling":"last"})"})
    EXPECT_THROW(read_embedding_config(bad, "m"), Error) << bad;
}

}  // namespace
}  // namespace walsh
