// Images in prompts: rows that are the embeddings of tokens have to give what these tokens give.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/model_support.h"
#include "model/positions.h"
#include "model/synthetic.h"
#include "schedule/scheduler.h"
#include "texts.h"
#include "threads.h"

namespace walsh {
namespace {

using test::finish;
using test::Recorder;
using test::Rows;
using testing::ElementsAreArray;
using testing::HasSubstr;

constexpr int64_t kPositions = 250;
constexpr int32_t kImageToken = 3;  // stands in prompts where images are

// Returns the embeddings of tokens, as the layers read them.
std::vector<float> embeddings(const Model& model, std::span<const int32_t> tokens) {
  const auto width = static_cast<size_t>(model.config.hidden);
  std::vector<float> rows(tokens.size() * width);
  std::vector<float> scratch(static_cast<size_t>(model.embedding.scratch()) + 1);
  for (size_t i = 0; i < tokens.size(); ++i)
    model.embedding.look_up(tokens[i], model.config.embedding_scale, rows.data() + i * width,
                            scratch.data());
  return rows;
}

struct Place {
  int64_t position, rows;
};

// A prompt in which rows stand for some of the tokens; the images are named by these tokens.
struct Shown {
  std::vector<int32_t> prompt;
  std::vector<PromptImage> images;
};

Shown show(const Model& model, const std::vector<int32_t>& tokens, const std::vector<Place>& places,
           bool together = false) {
  Shown shown{tokens, {}};
  for (const Place& place : places) {
    const auto first = tokens.begin() + place.position;
    const std::vector<int32_t> of_image(first, first + place.rows);
    PromptImage image{place.position, place.rows,
                      std::make_shared<std::vector<float>>(embeddings(model, of_image)),
                      fmt::format("{}", fmt::join(of_image, " ")), together};
    std::fill_n(shown.prompt.begin() + place.position, place.rows, kImageToken);
    shown.images.push_back(std::move(image));
  }
  return shown;
}

TextRequest request(const Shown& shown, int64_t max_tokens) {
  TextRequest wanted;
  wanted.prompt = shown.prompt;
  wanted.images = shown.images;
  wanted.max_tokens = max_tokens;
  wanted.sampler.temperature = 0;
  return wanted;
}

// Returns why a prompt is refused, or nothing if it is not.
std::string refusal_of(Scheduler& scheduler, const Shown& shown) {
  try {
    scheduler.add(request(shown, 1), std::make_shared<Recorder>());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    return error.what();
  }
  return "";
}

std::shared_ptr<Recorder> run(Scheduler& scheduler, const Shown& shown, int64_t max_tokens = 8) {
  auto sink = std::make_shared<Recorder>();
  scheduler.add(request(shown, max_tokens), sink);
  finish(scheduler);
  return sink;
}

SchedulerOptions small() {
  SchedulerOptions options;
  options.positions = kPositions;
  options.running = 4;
  options.step_tokens = 24;
  options.kept = 3;
  return options;
}

// Returns the logits of all tokens, evaluated in pieces of at most `piece` tokens.
Rows logits_of(const Model& model, const Shown& shown, int64_t piece) {
  SessionOptions options;
  options.max_positions = kPositions;
  Session session(model, options);
  const std::vector<ImageRows> images = rows_of(shown.images);
  Rows rows;
  const auto count = std::ssize(shown.prompt);
  for (int64_t begin = 0, m = 0; begin < count; begin += m) {
    m = whole_rows(shown.images, begin, std::min(piece, count - begin));
    SequenceTokens item{
        0, std::span(shown.prompt).subspan(static_cast<size_t>(begin), static_cast<size_t>(m)), m};
    item.images = images;
    session.evaluate({&item, 1}, [&](size_t, int64_t, std::span<const float> logits) {
      rows.emplace_back(logits.begin(), logits.end());
    });
  }
  return rows;
}

class ImagesTest : public testing::TestWithParam<const char*> {
 protected:
  ImagesTest() : model_(test::load_folder(test::tiny_model(GetParam()), pool_)) {}

  std::vector<int32_t> tokens(int64_t count, uint64_t seed = 1) const {
    auto tokens = test::random_tokens(count, model_.config.vocab - 4, seed);
    for (int32_t& token : tokens)
      token += 4;
    return tokens;
  }

  ThreadPool pool_{test::kThreads};
  Model model_;
};

TEST_P(ImagesTest, RowsOfEmbeddingsGiveTheLogitsOfTheirTokensHoweverTheyAreCut) {
  const auto text = tokens(150);
  const Shown shown = show(model_, text, {{0, 3}, {20, 40}, {60, 1}, {149, 1}});
  const Rows expected = logits_of(model_, {text, {}}, kPositions);
  for (const int64_t piece : {1, 7, 32, 150})
    EXPECT_EQ(logits_of(model_, shown, piece), expected) << piece;
}

TEST_P(ImagesTest, TextsBehindRowsAreThoseBehindTheirTokensInBatches) {
  Scheduler scheduler(model_, small());
  std::vector<std::shared_ptr<Recorder>> sinks;
  std::vector<std::vector<int32_t>> expected;
  for (uint64_t i = 0; i < 6; ++i) {
    const auto text = tokens(static_cast<int64_t>(30 + 11 * i), i);
    expected.push_back(test::plain_text(model_, request({text, {}}, 10), kPositions));
    sinks.push_back(std::make_shared<Recorder>());
    scheduler.add(request(show(model_, text, {{2, 9}, {15, 6}}), 10), sinks.back());
    scheduler.step();
  }
  finish(scheduler);
  for (size_t i = 0; i < sinks.size(); ++i)
    EXPECT_THAT(sinks[i]->tokens, ElementsAreArray(expected[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(Models, ImagesTest,
                         testing::Values("llama31-tiny", "gemma3-tiny", "gpt-oss-tiny",
                                         "qwen35-tiny", "mistral3-vision-tiny",
                                         "deepseek-v3-tiny"));

class LlamaImagesTest : public ImagesTest {};

TEST_P(LlamaImagesTest, ThePrefixOfTheSameImageIsSharedAndThatOfAnotherOneIsNot) {
  Scheduler scheduler(model_, small());
  const auto text = tokens(80);
  auto other_text = text;
  other_text[45] = text[45] == 9 ? 10 : 9;  // behind the first row of the image
  const Shown shown = show(model_, text, {{10, 50}}), other = show(model_, other_text, {{10, 50}});
  ASSERT_EQ(shown.prompt, other.prompt);
  EXPECT_EQ(run(scheduler, shown)->end->cached_tokens, 0);
  EXPECT_EQ(run(scheduler, shown)->end->cached_tokens, 79);
  const auto found = run(scheduler, other);
  EXPECT_EQ(found->end->cached_tokens, 10);
  EXPECT_THAT(found->tokens,
              ElementsAreArray(test::plain_text(model_, request({other_text, {}}, 8), kPositions)));
  // The same tokens without an image, and with one at another place, have no row of it.
  EXPECT_EQ(run(scheduler, {shown.prompt, {}})->end->cached_tokens, 10);
  Shown moved = shown;
  moved.images[0].position = 11;
  EXPECT_EQ(run(scheduler, moved)->end->cached_tokens, 11);
}

TEST(AxisPositions, TextGoesOnBehindTheLongerSideOfAGrid) {
  const std::vector<float> values(40);
  const auto rows = [&](int64_t position, int64_t count, int64_t columns) {
    return ImageRows{position, count, std::span(values).first(static_cast<size_t>(count)), false,
                     columns};
  };
  const std::vector<ImageRows> images = {rows(2, 6, 3), rows(9, 4, 0), rows(13, 8, 2)};
  const auto at = [&](int64_t position) { return axis_positions(images, position); };
  EXPECT_EQ(at(1), (AxisPositions{1, 1, 1}));
  EXPECT_EQ(at(2), (AxisPositions{2, 2, 2}));
  EXPECT_EQ(at(4), (AxisPositions{2, 2, 4}));
  EXPECT_EQ(at(7), (AxisPositions{2, 3, 4}));
  EXPECT_EQ(at(8), (AxisPositions{5, 5, 5}));  // three columns later
  EXPECT_EQ(at(12), (AxisPositions{9, 9, 9}));
  EXPECT_EQ(at(13), (AxisPositions{10, 10, 10}));
  EXPECT_EQ(at(20), (AxisPositions{10, 13, 11}));
  EXPECT_EQ(at(21), (AxisPositions{14, 14, 14}));  // four rows later
  EXPECT_EQ(axis_positions({}, 5), (AxisPositions{5, 5, 5}));
}

class GridImagesTest : public ImagesTest {
 protected:
  // Returns a prompt with two images of several columns, whose rows have values for `layers`
  // layers.
  Shown grids(int64_t layers, float value) const {
    Shown shown = show(model_, tokens(90), {{4, 12}, {30, 40}});
    const auto width = static_cast<size_t>(model_.config.hidden);
    for (PromptImage& image : shown.images) {
      image.columns = 4;
      std::vector<float> values;
      for (int64_t row = 0; row < image.rows; ++row) {
        const auto first = image.values->begin() + row * static_cast<int64_t>(width);
        values.insert(values.end(), first, first + static_cast<int64_t>(width));
        values.insert(values.end(), width * static_cast<size_t>(layers), value);
      }
      image.values = std::make_shared<std::vector<float>>(std::move(values));
    }
    return shown;
  }
};

TEST_P(GridImagesTest, LogitsDoNotDependOnHowAPromptWithGridsIsCut) {
  const auto layers = std::ssize(model_.layers);
  const Shown shown = grids(layers, 0.5F);
  const Rows expected = logits_of(model_, shown, kPositions);
  for (const int64_t piece : {1, 7, 32})
    EXPECT_EQ(logits_of(model_, shown, piece), expected) << piece;
  // Every value counts, for the rows that it belongs to and those behind them.
  const Rows without = logits_of(model_, grids(layers, 0), kPositions);
  EXPECT_EQ(logits_of(model_, grids(0, 0), kPositions), without);
  EXPECT_EQ(without[3], expected[3]);
  for (const size_t row : {4U, 15U, 16U, 89U})
    EXPECT_NE(without[row], expected[row]) << row;
  EXPECT_NE(logits_of(model_, grids(layers - 1, 0.5F), kPositions)[4], expected[4]);
  // So do places in the grid.
  Shown line = grids(layers, 0.5F);
  for (PromptImage& image : line.images)
    image.columns = 0;
  EXPECT_EQ(logits_of(model_, line, kPositions)[4], expected[4]);
  for (const size_t row : {8U, 16U, 89U})
    EXPECT_NE(logits_of(model_, line, kPositions)[row], expected[row]) << row;
}

TEST_P(GridImagesTest, DraftsPrefixesAndBatchesDoNotChangeTexts) {
  const Shown shown = grids(1, 0.5F);
  Scheduler alone(model_, small());
  const std::vector<int32_t> expected = run(alone, shown, 40)->tokens;
  const auto again = run(alone, shown, 40);
  EXPECT_EQ(again->end->cached_tokens, std::ssize(shown.prompt) - 1);
  EXPECT_EQ(again->tokens, expected);
  SchedulerOptions options = small();
  options.lookup = true;
  options.step_tokens = 11;
  Scheduler scheduler(model_, options);
  std::vector<std::shared_ptr<Recorder>> sinks;
  for (uint64_t i = 0; i < 3; ++i) {
    sinks.push_back(std::make_shared<Recorder>());
    scheduler.add(i == 1 ? request({tokens(50, 7), {}}, 30) : request(shown, 40), sinks.back());
    scheduler.step();
  }
  finish(scheduler);
  EXPECT_EQ(sinks[0]->tokens, expected);
  EXPECT_EQ(sinks[1]->tokens,
            test::plain_text(model_, request({tokens(50, 7), {}}, 30), kPositions));
  EXPECT_EQ(sinks[2]->tokens, expected);
}

TEST_P(GridImagesTest, RowsThatAreNoGridOrHaveValuesForTooManyLayersAreRefused) {
  Scheduler scheduler(model_, small());
  const auto refused = [&](const Shown& shown) { return refusal_of(scheduler, shown); };
  Shown shown = grids(0, 0);
  shown.images[1].columns = 7;
  EXPECT_THAT(refused(shown), HasSubstr("40 rows are no grid of 7 columns"));
  shown.images[1].columns = -1;
  EXPECT_THAT(refused(shown), HasSubstr("no grid"));
  const auto layers = std::ssize(model_.layers);
  EXPECT_THAT(refused(grids(layers + 1, 0)), HasSubstr(fmt::format("at most {} layers", layers)));
}

INSTANTIATE_TEST_SUITE_P(Models, GridImagesTest,
                         testing::Values("qwen3-vl-tiny", "qwen3-vl-moe-bias-tiny",
                                         "qwen35-vision-tiny", "qwen35-moe-vision-tiny"));

// The other models have no more positions than a page.
TEST(PreemptedImagesTest, APreemptedTextReadsItsImagesAgain) {
  ThreadPool pool(test::kThreads);
  SyntheticSource source("tiny", {&get_format("tq4"), &get_format("f16"), &get_format("f16")});
  LoadOptions load;
  load.pool = &pool;
  const Model model = Model::load(source, parse_config(source.config_json(), source.path()), load);
  SchedulerOptions options = small();
  options.positions = 512;
  options.running = 2;
  options.step_tokens = 256;
  options.cache_positions = 768;
  Scheduler scheduler(model, options);
  std::vector<std::shared_ptr<Recorder>> sinks;
  std::vector<std::vector<int32_t>> texts;
  for (uint64_t i = 0; i < 2; ++i) {
    texts.push_back(test::random_tokens(200, 500, i));
    sinks.push_back(std::make_shared<Recorder>());
    scheduler.add(request(show(model, texts.back(), {{5, 150}}), 100), sinks.back());
  }
  finish(scheduler);
  EXPECT_GT(scheduler.counts().preempted, 0u);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_THAT(sinks[i]->tokens,
                ElementsAreArray(test::plain_text(model, request({texts[i], {}}, 100), 512)));
}

TEST_P(LlamaImagesTest, DraftsDoNotChangeATextBehindAnImage) {
  SchedulerOptions options = small();
  options.lookup = true;
  Scheduler scheduler(model_, options);
  auto text = tokens(20);
  for (int i = 0; i < 40; ++i)
    text.push_back(text[static_cast<size_t>(i)]);
  EXPECT_THAT(run(scheduler, show(model_, text, {{5, 30}}), 40)->tokens,
              ElementsAreArray(test::plain_text(model_, request({text, {}}, 40), kPositions)));
}

TEST_P(LlamaImagesTest, RowsThatSeeEachOtherAreNeverCut) {
  const auto text = tokens(240);
  const Shown shown = show(model_, text, {{30, 70}, {100, 5}, {110, 120}}, true);
  const Rows expected = logits_of(model_, shown, kPositions);
  for (const int64_t piece : {1, 33, 150})
    EXPECT_EQ(logits_of(model_, shown, piece), expected) << piece;
  // Its first row knows the last one, and no row before it does.
  auto other_text = text;
  other_text[99] = text[99] == 9 ? 10 : 9;
  const Rows other = logits_of(model_, show(model_, other_text, {{30, 70}}, true), kPositions);
  EXPECT_EQ(other[29], expected[29]);
  for (const size_t row : {30u, 60u, 99u})
    EXPECT_NE(other[row], expected[row]) << row;
  // Without it only the last one does.
  const Rows in_order = logits_of(model_, show(model_, other_text, {{30, 70}}), kPositions);
  EXPECT_EQ(in_order[98], logits_of(model_, {text, {}}, kPositions)[98]);
}

TEST_P(LlamaImagesTest, RowsThatSeeEachOtherAreSharedAndScheduledAsAWhole) {
  Scheduler scheduler(model_, small());
  const auto text = tokens(100);
  const Shown shown = show(model_, text, {{30, 40}}, true);
  std::vector<std::vector<int32_t>> texts;
  std::vector<std::shared_ptr<Recorder>> beside;
  for (uint64_t i = 0; i < 3; ++i) {
    beside.push_back(std::make_shared<Recorder>());
    scheduler.add(request({tokens(20, 5 + i), {}}, 30), beside.back());
    scheduler.step();
  }
  const auto among_others = run(scheduler, shown);
  Scheduler alone(model_, small());
  EXPECT_THAT(run(alone, shown)->tokens, ElementsAreArray(among_others->tokens));
  // A prompt that ends inside of the image's beginning cannot share a part of it.
  Shown shorter = shown;
  shorter.prompt.resize(70);
  EXPECT_EQ(run(alone, shorter)->end->cached_tokens, 30);
}

TEST_P(LlamaImagesTest, ImagesThatDoNotFitTheirPromptAreRefused) {
  Scheduler scheduler(model_, small());
  const auto refused = [&](const Shown& shown) { return refusal_of(scheduler, shown); };
  const auto text = tokens(40);
  Shown shown = show(model_, text, {{10, 20}});
  shown.images[0].position = 21;
  EXPECT_THAT(refused(shown), HasSubstr("20 rows from position 21 on do not fit"));
  shown.images[0].position = -1;
  EXPECT_THAT(refused(shown), HasSubstr("do not fit"));
  shown = show(model_, text, {{10, 20}, {29, 5}});
  EXPECT_THAT(refused(shown), HasSubstr("5 rows from position 29 on do not fit"));
  shown = show(model_, text, {{10, 20}});
  shown.images[0].rows = 19;
  EXPECT_THAT(refused(shown), HasSubstr("values for 19 rows"));
}

INSTANTIATE_TEST_SUITE_P(Models, LlamaImagesTest, testing::Values("llama31-tiny"));

class GemmaImagesTest : public ImagesTest {};

// The rows of an image are seen by each other also where a window would hide them.
TEST_P(GemmaImagesTest, RowsThatSeeEachOtherDoSoBeyondAWindow) {
  const auto text = tokens(120);
  auto other_text = text;
  other_text[30] = text[30] == 9 ? 10 : 9;
  ASSERT_LT(model_.config.layers[0].attention.window, 60);
  const Shown shown = show(model_, text, {{30, 70}}, true);
  const Rows expected = logits_of(model_, shown, kPositions);
  EXPECT_EQ(logits_of(model_, shown, 50), expected);
  EXPECT_NE(logits_of(model_, show(model_, other_text, {{30, 70}}, true), 50)[99], expected[99]);
}

INSTANTIATE_TEST_SUITE_P(Models, GemmaImagesTest, testing::Values("gemma3-tiny"));

}  // namespace
}  // namespace walsh
