// Tests preprocessing and towers against transformers (tools/make_vision_goldens.py).
#include "vision/image_encoder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/cpu.h"
#include "io/json.h"
#include "io/mapped_file.h"
#include "temporary_folder.h"
#include "vision/files.h"
#include "vision/image.h"
#include "vision/preprocess.h"
#include "walsh/error.h"

namespace walsh::vision {
namespace {

using testing::HasSubstr;

// Stands for the weights of a model of which only the files are used.
class Source : public WeightSource {
 public:
  explicit Source(std::string path) : path_(std::move(path)) {
    config_ = read_text_file(path_ + "/config.json", 1 << 20);
  }
  std::string path() const override { return path_; }
  std::string_view config_json() const override { return config_; }
  std::string_view generation_config_json() const override { return {}; }
  std::string_view tokenizer_json() const override { return {}; }
  std::string_view tokenizer_config_json() const override { return {}; }
  bool contains(const std::string&) const override { return false; }
  std::vector<std::string> names() const override { return {}; }
  const Format& format_of(const std::string&) const override { return dense_format(DType::f32); }
  Tensor load(const std::string&) override { return {}; }
  void release(const std::string&) override {}

 private:
  std::string path_, config_;
};

Tokenizer tokenizer_of(const std::string& folder) {
  return Tokenizer::from_json(read_text_file(folder + "/tokenizer.json", 1 << 20), "", folder);
}

std::shared_ptr<const ImageEncoder> open(const std::string& folder, int threads = 1) {
  return ImageEncoder::open(Source(folder), tokenizer_of(folder), threads);
}

const char* const kModels[] = {"gemma3-a",   "gemma3-b",   "gemma3-c",
                               "mistral3-a", "mistral3-b", "mistral3-c"};
const char* const kTowers[] = {"gemma3-a",   "gemma3-b", "gemma3-c", "mistral3-a", "mistral3-b",
                               "mistral3-c", "qwen35-a", "qwen35-b", "qwen3vl-a",  "qwen3vl-b"};
const char* const kImages[] = {"turned.jpg", "alpha.png"};

class Towers : public testing::TestWithParam<const char*> {
 protected:
  void TearDown() override { force_isa(""); }
};

TEST_P(Towers, RowsEqualTransformers) {
  for (const std::string model : kTowers) {
    force_isa(GetParam());
    const auto encoder = open(test::vision_path(model), 2);
    ASSERT_NE(encoder, nullptr);
    const test::Expected expected(model);
    for (const std::string image : kImages) {
      const ImageEmbedding got = encoder->encode(test::read_image(image), image);
      const auto& shape = expected.shape(image + ".features");
      ASSERT_EQ(got.rows, shape[0]) << model;
      ASSERT_EQ(got.width, shape[1]) << model;
      const auto values = expected.values(image + ".features");
      ASSERT_EQ(got.values.size(), values.size());
      float most = 0, size = 1;
      for (size_t i = 0; i < values.size(); ++i) {
        most = std::max(most, std::abs(values[i] - got.values[i]));
        size = std::max(size, std::abs(values[i]));
      }
      EXPECT_LT(most, 1e-3F * size) << model << " " << image;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, Towers, testing::Values("ref", "avx2"));

TEST(Preprocess, PatchesEqualTransformers) {
  for (const std::string model : kModels) {
    const bool gemma = model.starts_with("gemma");
    const Json config =
        parse_json(read_text_file(test::vision_path(model + "/config.json"), 1 << 20), model);
    const Json processor = parse_json(
        read_text_file(test::vision_path(model + "/processor_config.json"), 1 << 20), model);
    PreprocessRule rule;
    rule.sizing = gemma ? Sizing::fixed : Sizing::box;
    rule = read_preprocess(processor["image_processor"], rule, model);
    const int64_t side = config["vision_config"]["patch_size"].get<int64_t>();
    if (!gemma) rule.step = side * config["spatial_merge_size"].get<int64_t>();
    const test::Expected expected(model);
    for (const std::string name : kImages) {
      const Image image = decode_image(test::read_image(name), name, {});
      const Rows grid = make_patches(image, rule, side, name);
      const auto pixels = expected.values(name + ".pixels");
      const auto& shape = expected.shape(name + ".pixels");
      ASSERT_EQ(grid.rows, shape[1] / side) << model << name;
      ASSERT_EQ(grid.columns, shape[2] / side) << model << name;
      float most = 0;
      for (size_t i = 0; i < grid.values.size(); ++i) {
        const auto place = static_cast<int64_t>(i);
        const int64_t patch = place / grid.width, c = place % grid.width / (side * side);
        const int64_t y = patch / grid.columns * side + place % (side * side) / side;
        const int64_t x = patch % grid.columns * side + place % side;
        const auto from = static_cast<size_t>((c * shape[1] + y) * shape[2] + x);
        most = std::max(most, std::abs(pixels[from] - grid.values[i]));
      }
      EXPECT_LT(most, 1e-2F) << model << " " << name;
    }
  }
}

TEST(Preprocess, SizesFollowTheRuleOfQwen) {
  PreprocessRule rule;
  rule.sizing = Sizing::area;
  rule.step = 32;
  rule.min_pixels = 64 * 64;
  rule.max_pixels = 256 * 256;
  EXPECT_EQ(resized(rule, {100, 80}, ""), (ImageSize{96, 64}));  // 2.5 is rounded to even
  EXPECT_EQ(resized(rule, {10, 20}, ""), (ImageSize{64, 96}));
  EXPECT_EQ(resized(rule, {1000, 600}, ""), (ImageSize{320, 192}));
  EXPECT_THROW(resized(rule, {1, 201}, ""), Error);
}

TEST(ImageEncoder, TokensOfMistral3DivideRows) {
  const std::string folder = test::vision_path("mistral3-a");
  const Tokenizer tokenizer = tokenizer_of(folder);
  const auto encoder = open(folder);
  const ImageEmbedding image = encoder->encode(test::read_image("alpha.png"), "image");
  const int32_t img = *tokenizer.token_id("[IMG]"), row = *tokenizer.token_id("[IMG_BREAK]"),
                end = *tokenizer.token_id("[IMG_END]");
  // 20 x 11 pixels become 24 x 16, and 8 x 8 of them a row.
  EXPECT_THAT(image.tokens, testing::ElementsAre(img, img, img, row, img, img, img, end));
  EXPECT_EQ(image.image_token, img);
  EXPECT_FALSE(image.bidirectional);
  EXPECT_EQ(encoder->placeholder(), img);
  EXPECT_EQ(encoder->placeholder_text(), "[IMG]");
  EXPECT_EQ(encoder->prompt_text(), "[IMG]");
}

TEST(ImageEncoder, TokensOfGemma3StandBetweenBeginAndEnd) {
  const std::string folder = test::vision_path("gemma3-c");
  const Tokenizer tokenizer = tokenizer_of(folder);
  const auto encoder = open(folder);
  const ImageEmbedding image = encoder->encode(test::read_image("alpha.png"), "image");
  const int32_t soft = *tokenizer.token_id("<image_soft_token>");
  EXPECT_THAT(image.tokens,
              testing::ElementsAre(*tokenizer.token_id("<start_of_image>"), soft, soft, soft, soft,
                                   *tokenizer.token_id("<end_of_image>")));
  EXPECT_TRUE(image.bidirectional);
  EXPECT_EQ(encoder->prompt_text(), "\n\n<start_of_image>\n\n");
}

TEST(ImageEncoder, RowsOfQwen35StandInAGrid) {
  const std::string folder = test::vision_path("qwen35-b");
  const auto encoder = open(folder);
  const ImageEmbedding image = encoder->encode(test::read_image("alpha.png"), "image");
  // 20 x 11 pixels become 18 x 12, and 6 x 6 of them a row.
  EXPECT_EQ(image.rows, 6);
  EXPECT_EQ(image.grid_columns, 3);
  EXPECT_EQ(image.tokens, std::vector<int32_t>(6, image.image_token));
  const auto other = open(test::vision_path("gemma3-c"));
  EXPECT_EQ(other->encode(test::read_image("alpha.png"), "image").grid_columns, 0);
}

TEST(ImageEncoder, AnImageWithTooManyRowsIsRefusedBeforeTheTowerRuns) {
  for (const std::string model : kTowers) {
    const auto encoder = open(test::vision_path(model));
    const auto file = test::read_image("turned.jpg");
    const int64_t rows = encoder->encode(file, "image", 1 << 20).rows;
    EXPECT_EQ(encoder->encode(file, "image", rows).rows, rows);
    try {
      encoder->encode(file, "image", rows - 1);
      ADD_FAILURE() << model;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      EXPECT_EQ(std::string(error.what()), fmt::format("image: it takes {} positions, and the "
                                                       "prompt has room for {}",
                                                       rows, rows - 1));
    }
  }
}

TEST(ImageEncoder, TheSameBytesAreTheSameContentForAnyNumberOfThreads) {
  const std::string folder = test::vision_path("mistral3-c");
  const auto file = test::read_image("turned.jpg");
  const ImageEmbedding one = open(folder, 1)->encode(file, "a"),
                       three = open(folder, 3)->encode(file, "b");
  EXPECT_EQ(one.content, three.content);
  EXPECT_EQ(one.values, three.values);
  EXPECT_NE(one.content, open(folder)->encode(test::read_image("alpha.png"), "c").content);
}

// Returns a copy of a model in which a text of a file is another.
std::string changed(const test::TemporaryFolder& to, const std::string& model,
                    const std::string& file, const std::string& from, const std::string& text) {
  std::filesystem::copy(
      test::vision_path(model), to.path(),
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  std::string content = read_text_file(to.file(file), 1 << 20);
  const size_t place = content.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  to.write(file, content.replace(place, from.size(), text));
  return to.path();
}

std::string failure(const std::string& folder) {
  try {
    open(folder);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    return error.what();
  }
  return {};
}

TEST(ImageEncoder, AFolderCannotMakeImagesEndlesslyLarge) {
  const test::TemporaryFolder folder;
  const std::string most = "1099511627776";
  const std::string model =
      changed(folder, "qwen3vl-a", "processor_config.json", "1600,\n   \"shortest_edge\": 256",
              most + ", \"shortest_edge\": " + most);
  try {
    open(model)->encode(test::read_image("turned.jpg"), "image");
    ADD_FAILURE() << "it was encoded";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::limit);
    EXPECT_THAT(error.what(), HasSubstr("pixels of it, 67108864 are allowed"));
  }
}

TEST(ImageEncoder, WhatDoesNotFitIsRefusedByName) {
  const test::TemporaryFolder folder;
  EXPECT_THAT(failure(changed(folder, "mistral3-a", "config.json", "\"patch_size\": 4",
                              "\"patch_size\": 5")),
              HasSubstr("patch_conv.weight"));
  EXPECT_THAT(failure(changed(folder, "mistral3-a", "config.json", "\"num_hidden_layers\": 2",
                              "\"num_hidden_layers\": 3")),
              HasSubstr("transformer.layers.2."));
  EXPECT_THAT(failure(changed(folder, "gemma3-a", "config.json",
                              "\"hidden_act\": \"gelu_pytorch_tanh\"", "\"hidden_act\": \"relu\"")),
              HasSubstr("relu"));
  EXPECT_THAT(failure(changed(folder, "gemma3-a", "config.json", "\"mm_tokens_per_image\": 16",
                              "\"mm_tokens_per_image\": 15")),
              HasSubstr("mm_tokens_per_image"));
  EXPECT_THAT(failure(changed(folder, "mistral3-a", "tokenizer.json", "[IMG_BREAK]", "[BREAK]")),
              HasSubstr("[IMG_BREAK]"));
  EXPECT_THAT(failure(changed(folder, "mistral3-a", "processor_config.json", "\"resample\": 3",
                              "\"resample\": 0")),
              HasSubstr("resample"));
  const auto of_qwen = [&](const char* file, const char* from, const char* to) {
    return failure(changed(folder, "qwen3vl-a", file, from, to));
  };
  EXPECT_THAT(of_qwen("config.json", "\"out_hidden_size\": 16", "\"out_hidden_size\": 32"),
              HasSubstr("out_hidden_size"));
  EXPECT_THAT(of_qwen("config.json", "\"deepstack_visual_indexes\": [\n      0,",
                      "\"deepstack_visual_indexes\": [\n      1,"),
              HasSubstr("deepstack_visual_indexes"));
  EXPECT_THAT(
      of_qwen("config.json", "\"num_position_embeddings\": 36", "\"num_position_embeddings\": 35"),
      HasSubstr("num_position_embeddings"));
  EXPECT_THAT(of_qwen("processor_config.json", "\"merge_size\": 2", "\"merge_size\": 3"),
              HasSubstr("merge_size"));
  std::filesystem::remove(folder.file("processor_config.json"));
  EXPECT_THAT(failure(folder.path()), HasSubstr("preprocessor_config.json: missing"));
}

TEST(ImageEncoder, AModelWithoutATowerHasNone) {
  const test::TemporaryFolder folder;
  folder.write("config.json", R"({"model_type": "llama"})");
  const Source text(folder.path());
  const Tokenizer tokenizer = tokenizer_of(test::vision_path("gemma3-a"));
  EXPECT_EQ(ImageEncoder::open(text, tokenizer), nullptr);
  EXPECT_THAT(missing_tower(text), HasSubstr("takes no images"));
  folder.write("config.json", R"({"model_type": "gemma4", "vision_config": {}})");
  const Source other(folder.path());
  EXPECT_EQ(ImageEncoder::open(other, tokenizer), nullptr);
  EXPECT_THAT(missing_tower(other), HasSubstr("not supported"));
  EXPECT_EQ(missing_tower(Source(test::vision_path("gemma3-a"))), "");
}

}  // namespace
}  // namespace walsh::vision
