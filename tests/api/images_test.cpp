// Tests prompts with images against transformers (tools/make_vision_goldens.py), by all ways into
// the library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "api/load.h"
#include "api/text_request.h"
#include "io/json.h"
#include "model/session.h"
#include "schedule/texts.h"
#include "threads.h"
#include "walsh/batch.h"
#include "walsh/engine.h"
#include "walsh/error.h"
#include "walsh/walsh.h"

namespace walsh {
namespace {

using testing::HasSubstr;

constexpr int64_t kPositions = 200;
const std::string kVision = std::string(WALSH_TEST_DATA) + "/vision/";
const std::string kTextModel = std::string(WALSH_SOURCE_DIR) + "/models/walsh-tiny-13m";

std::string content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string image(const std::string& name) {
  return content_of(kVision + "images/" + name);
}

// This is a message with images as transformers continues it.
struct Chat {
  std::string text, prompt;
  std::vector<std::string> images;
  std::vector<int32_t> input_ids, tokens;
  std::vector<float> logits;
};

std::vector<Chat> chats_of(const std::string& model) {
  std::vector<Chat> chats;
  for (const Json& json : parse_json(content_of(kVision + model + "/chats.json"), model)) {
    Chat chat{json["text"], json["prompt"], {}, json["input_ids"], json["tokens"], json["logits"]};
    for (const Json& name : json["images"])
      chat.images.push_back(image(name));
    chats.push_back(std::move(chat));
  }
  return chats;
}

GenerationOptions greedy(const Chat& chat) {
  GenerationOptions options;
  options.temperature = 0;
  options.max_tokens = std::ssize(chat.tokens);
  options.ignore_eos = true;
  options.images = chat.images;
  return options;
}

Engine open_engine(const std::string& path) {
  EngineOptions options;
  options.device = "cpu";
  options.threads = test::kThreads;
  options.context = kPositions;
  options.batch.emplace();
  return Engine::open(path, options);
}

template <class Body>
std::string failure(ErrorCode code, const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

class Images : public testing::TestWithParam<const char*> {
 protected:
  Images() : chats_(chats_of(GetParam())) {}

  std::string path() const { return kVision + GetParam(); }
  LoadedModel load() {
    LoadOptions options;
    options.pool = &pool_;
    options.use.max_positions = kPositions;
    return load_model(path(), nullptr, options);
  }
  // Returns the index of the chat with two images.
  const Chat& with_two() const { return chats_[2]; }

  ThreadPool pool_{test::kThreads};
  std::vector<Chat> chats_;
};

TEST_P(Images, TokensAndLogitsOfAPromptEqualTransformers) {
  const LoadedModel model = load();
  for (const Chat& chat : chats_) {
    const GenerationOptions options = greedy(chat);
    const TextRequest request =
        text_request(model, prompt_tokens(model, chat.prompt, options), options);
    EXPECT_EQ(request.prompt, chat.input_ids);
    Session session(model.model, {.max_positions = kPositions});
    const std::vector<ImageRows> rows = rows_of(request.images);
    SequenceTokens item{0, request.prompt};
    item.images = rows;
    std::vector<float> logits;
    session.evaluate({&item, 1}, [&](size_t, int64_t, std::span<const float> values) {
      logits.assign(values.begin(), values.end());
    });
    ASSERT_EQ(logits.size(), chat.logits.size());
    float most = 0, size = 1;
    for (size_t i = 0; i < logits.size(); ++i) {
      most = std::max(most, std::abs(logits[i] - chat.logits[i]));
      size = std::max(size, std::abs(chat.logits[i]));
    }
    EXPECT_LT(most, 1e-3F * size) << chat.prompt;
  }
}

TEST_P(Images, TextsEqualTransformersInBatches) {
  const LoadedModel model = load();
  for (const bool lookup : {false, true}) {
    SchedulerOptions options;
    options.positions = kPositions;
    options.running = 3;
    options.step_tokens = 24;
    options.lookup = lookup;
    Scheduler scheduler(model.model, options);
    std::vector<std::shared_ptr<test::Recorder>> sinks;
    for (const Chat& chat : chats_) {
      GenerationOptions wanted = greedy(chat);
      wanted.lookup = lookup;
      sinks.push_back(std::make_shared<test::Recorder>());
      scheduler.add(text_request(model, prompt_tokens(model, chat.prompt, wanted), wanted),
                    sinks.back());
      scheduler.step();
    }
    test::finish(scheduler);
    for (size_t i = 0; i < chats_.size(); ++i)
      EXPECT_EQ(sinks[i]->tokens, chats_[i].tokens) << i << lookup;
  }
}

TEST_P(Images, TheLibraryContinuesPromptsWithImagesInEveryWay) {
  Engine engine = open_engine(path());
  EXPECT_EQ(engine.missing_images(), "");
  const Json picture = {{"type", "image"}}, words = {{"type", "text"}, {"text", chats_[0].text}};
  const Json parts = Json::array({picture, words});
  const Json message = {{"role", "user"}, {"content", parts}};
  EXPECT_EQ(engine.chat_prompt(Json::array({message}).dump()), chats_[0].prompt);
  TextBatch batch(engine);
  for (const Chat& chat : chats_) {
    const GenerationOptions options = greedy(chat);
    const GenerationResult alone = engine.generate(chat.prompt, options);
    EXPECT_EQ(alone.prompt_tokens, std::ssize(chat.input_ids));
    EXPECT_EQ(alone.tokens, std::ssize(chat.tokens));
    EXPECT_EQ(batch.generate(std::vector<std::string>{chat.prompt}, options)[0].text, alone.text);
  }
  EXPECT_NE(engine.generate(chats_[0].prompt, greedy(chats_[0])).text,
            engine.generate(chats_[1].prompt, greedy(chats_[1])).text);
}

TEST_P(Images, ASessionKnowsAPrefixByItsImages) {
  Engine engine = open_engine(path());
  TextSession session(engine);
  GenerationOptions options = greedy(chats_[0]);
  const std::string text = session.generate(chats_[0].prompt, options).text;
  const GenerationResult again = session.generate(chats_[0].prompt, options);
  EXPECT_EQ(again.text, text);
  // A session of a recurrent model keeps no states to which it could return.
  if (!std::string(GetParam()).starts_with("qwen35")) {
    EXPECT_GT(again.cached_tokens, std::ssize(chats_[0].input_ids) / 2);
  }
  // The same tokens with another image share only what stands in front of it.
  const Chat& two = with_two();
  options = greedy(two);
  session.generate(two.prompt, options);
  std::swap(options.images[0], options.images[1]);
  EXPECT_LT(session.generate(two.prompt, options).cached_tokens, 20);
}

TEST_P(Images, TheCInterfaceTakesThemForTheNextPrompt) {
  const Chat& chat = with_two();
  Engine engine = open_engine(path());
  const std::string expected = engine.generate(chat.prompt, greedy(chat)).text;
  walsh_model* model = nullptr;
  walsh_session* session = nullptr;
  ASSERT_EQ(walsh_open(path().c_str(), R"({"device": "cpu", "threads": 2})", &model), WALSH_OK)
      << walsh_error();
  ASSERT_EQ(walsh_session_open(model, kPositions, &session), WALSH_OK) << walsh_error();
  std::string text;
  const auto append = [](void* user, const char* piece, size_t length) {
    static_cast<std::string*>(user)->append(piece, length);
    return 1;
  };
  const std::string options = R"({"temperature": 0, "ignore_eos": true, "max_tokens": )" +
                              std::to_string(chat.tokens.size()) + "}";
  const auto generate = [&] {
    return walsh_generate(session, chat.prompt.data(), chat.prompt.size(), options.c_str(), append,
                          &text, nullptr);
  };
  for (const std::string& file : chat.images)
    EXPECT_EQ(walsh_session_add_image(session, file.data(), file.size()), WALSH_OK);
  EXPECT_EQ(generate(), WALSH_OK) << walsh_error();
  EXPECT_EQ(text, expected);
  text.clear();
  EXPECT_EQ(walsh_session_add_image(session, chat.images[0].data(), chat.images[0].size()),
            WALSH_OK);
  EXPECT_EQ(generate(), WALSH_USAGE);
  EXPECT_THAT(walsh_error(), HasSubstr("2 places for images"));
  EXPECT_EQ(walsh_session_add_image(session, nullptr, 1), WALSH_USAGE);
  walsh_session_close(session);
  walsh_close(model);
}

TEST_P(Images, WhatIsNoImageIsRefused) {
  Engine engine = open_engine(path());
  GenerationOptions options = greedy(chats_[0]);
  const auto refused = [&](ErrorCode code) {
    return failure(code, [&] { engine.generate(chats_[0].prompt, options); });
  };
  options.images[0] = "a text";
  EXPECT_THAT(refused(ErrorCode::bad_input), HasSubstr("image 1"));
  options.images[0] = image("turned.jpg").substr(0, 300);
  EXPECT_THAT(refused(ErrorCode::bad_input), HasSubstr("image 1"));
  options.images = {image("alpha.png"), image("alpha.png")};
  EXPECT_THAT(refused(ErrorCode::usage), HasSubstr("1 place for images"));
  options.images.assign(40, image("alpha.png"));
  std::string many;
  for (size_t i = 0; i < options.images.size(); ++i)
    many += chats_[0].prompt;
  EXPECT_THAT(failure(ErrorCode::usage, [&] { engine.generate(many, options); }),
              HasSubstr("positions"));
}

INSTANTIATE_TEST_SUITE_P(Families, Images,
                         testing::Values("mistral3-chat", "gemma3-chat", "qwen3vl-chat",
                                         "qwen3vl-wide-chat", "qwen3vl-long-chat",
                                         "qwen3vl-moe-chat", "qwen3vl-moe-wide-chat",
                                         "qwen3vl-moe-long-chat", "qwen35-chat", "qwen35-wide-chat",
                                         "qwen35-long-chat", "qwen35-moe-chat",
                                         "qwen35-moe-wide-chat", "qwen35-moe-long-chat"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(ImagesOfOtherModels, ModelsThatTakeNoneSayWhy) {
  Engine text = open_engine(kTextModel);
  EXPECT_THAT(text.missing_images(), HasSubstr("takes no images"));
  GenerationOptions options;
  options.images = {image("alpha.png")};
  EXPECT_THAT(failure(ErrorCode::usage, [&] { text.generate("a", options); }),
              HasSubstr("takes no images"));
}

// Gives a row of two values for each byte of a file, and counts the files.
class Counting : public ImageEncoder {
 public:
  int32_t placeholder() const override { return 7; }
  std::string_view placeholder_text() const override { return "<x>"; }
  std::string_view prompt_text() const override { return "(<x>)"; }
  ImageEmbedding encode(std::span<const std::byte> file, const std::string&,
                        int64_t) const override {
    ++count;
    ImageEmbedding result;
    result.rows = std::ssize(file);
    result.width = 2;
    result.values.assign(file.size() * 2, 1);
    result.tokens.assign(file.size(), 9);
    result.tokens.insert(result.tokens.begin() + 1, 8);
    result.image_token = 9;
    return result;
  }
  mutable int count = 0;
};

TEST(ImageReader, PutsTokensAndRowsInPlacesOfPlaceholders) {
  const auto encoder = std::make_shared<const Counting>();
  const ImageReader reader([&] { return encoder; });
  EXPECT_EQ(reader.prompt_text("a<x>b<x>"), "a(<x>)b(<x>)");
  std::vector<int32_t> prompt = {1, 7, 2, 7};
  std::vector<PromptImage> images;
  reader.show(prompt, std::vector<std::string>{"abc", "de"}, images);
  EXPECT_EQ(prompt, (std::vector<int32_t>{1, 9, 8, 9, 9, 2, 9, 8, 9}));
  ASSERT_EQ(images.size(), 4);
  EXPECT_EQ(images[1].position, 3);
  EXPECT_EQ(images[1].rows, 2);
  EXPECT_EQ(images[1].values->size(), 4);
  EXPECT_EQ(images[3].position, 8);
  EXPECT_NE(images[0].hash, images[1].hash);
}

TEST(ImageReader, AnOwnersFilesAreEncodedOnce) {
  const auto encoder = std::make_shared<const Counting>();
  const ImageReader reader([&] { return encoder; });
  const auto show = [&](const std::string& owner, const std::string& file) {
    std::vector<int32_t> prompt = {7};
    std::vector<PromptImage> images;
    reader.show(prompt, {&file, 1}, images, owner);
    return images.front();
  };
  const PromptImage first = show("a", "abc"), again = show("a", "abc");
  EXPECT_EQ(encoder->count, 1);
  EXPECT_EQ(first.values, again.values) << "the rows are shared";
  EXPECT_TRUE(first.same(again));
  EXPECT_TRUE(first.same(show("b", "abc"))) << "prefixes of owners are kept apart elsewhere";
  EXPECT_EQ(encoder->count, 2);
  EXPECT_FALSE(first.same(show("a", "abd")));
}

TEST(ImageReader, RowsOfRunningPromptsHaveALimit) {
  const auto encoder = std::make_shared<const Counting>();
  const ImageReader reader([&] { return encoder; }, 64);  // bytes: of 8 rows
  const auto show = [&](const std::string& file, int64_t most = 100) {
    std::vector<int32_t> prompt = {7, 7};
    std::vector<PromptImage> images;
    reader.show(prompt, std::vector<std::string>(2, file), images, "", most);
    return images;
  };
  auto held = show("abcde");
  EXPECT_THROW(show("12345"), NoRoomForImages);
  EXPECT_EQ(show("abcde").size(), 4) << "the same rows take no more room";
  held.clear();
  EXPECT_EQ(show("12345").size(), 4) << "rows that are only remembered give way";
  EXPECT_EQ(show("12345", 3).size(), 2) << "a prompt that is too long is not finished";
}

}  // namespace
}  // namespace walsh
