// Tests a config that ties the output head to the embedding beside a checkpoint that holds both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "io/json.h"
#include "model_support.h"
#include "quantize/pipeline/open.h"
#include "quantize/pipeline/pipeline.h"

namespace walsh {
namespace {

constexpr const char* kUntied = "llama2-bias-tiny";  // with an lm_head of its own

class TiedHead : public testing::Test {
 protected:
  TiedHead() {
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(test::tiny_model(kUntied), folder_);
    Json config = parse_json(test::read_file(path() + "/config.json"), "config");
    EXPECT_FALSE(config["tie_word_embeddings"].get<bool>());
    config["tie_word_embeddings"] = true;
    std::ofstream(path() + "/config.json") << config.dump();
  }
  ~TiedHead() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_.string(); }

  // Makes the head a copy of the embedding.
  void copy_embedding() const {
    const Checkpoint checkpoint = Checkpoint::open(path());
    const TensorInfo& head = *checkpoint.find("lm_head.weight");
    const TensorInfo& embedding = *checkpoint.find("model.embed_tokens.weight");
    const auto source = checkpoint.data(embedding);
    const std::string bytes(reinterpret_cast<const char*>(source.data()), source.size());
    ASSERT_EQ(head.bytes, embedding.bytes);
    std::fstream file(head.file, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(head.offset));
    file << bytes;
  }

  test::Rows logits(WeightSource& source) {
    const ModelConfig config = parse_config(source.config_json(), "config.json");
    const Model model = Model::load(source, config, {&pool_, ActivationMode::automatic, {}});
    Session session(model, {64});
    return test::all_logits(session, test::random_tokens(40, config.vocab, 1));
  }
  test::Rows logits(const std::string& path, const Recipe* recipe = nullptr) {
    return logits(*open_source(path, recipe, pool_));
  }

  ThreadPool pool_{1};
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("walsh_tied_head_" + std::to_string(getpid()));
};

TEST_F(TiedHead, AHeadThatDiffersIsUsedAndANoteSaysSo) {
  const auto source = open_source(path(), nullptr, pool_);
  EXPECT_THAT(source->notes(),
              testing::ElementsAre(testing::AllOf(testing::HasSubstr("config.json"),
                                                  testing::HasSubstr("lm_head.weight"))));
  EXPECT_EQ(logits(*source), logits(test::tiny_model(kUntied)));
}

TEST_F(TiedHead, ItIsCompressedAsThatOfAnUntiedModelAlsoWhenFolded) {
  for (const RotateAt rotate : {RotateAt::input, RotateAt::residual, RotateAt::both}) {
    Recipe recipe;
    recipe.type = &get_format("tq4");
    recipe.head_type = &get_format("tq3");
    recipe.rotate = rotate;
    recipe.encode.effort = Effort::fast;
    EXPECT_EQ(logits(path(), &recipe), logits(test::tiny_model(kUntied), &recipe))
        << rotate_at_name(rotate);
    // The file stands for itself: its config is that of what it holds.
    const auto source = open_compressor(path(), recipe, pool_);
    EXPECT_EQ(source->notes().size(), 1u);
    const std::string file = path() + "/out.gguf";
    quantize_to_file(*source, file, {});
    const auto written = open_source(file, nullptr, pool_);
    EXPECT_FALSE(parse_config(written->config_json(), "file").tied_head);
    EXPECT_EQ(logits(*written), logits(path(), &recipe)) << rotate_at_name(rotate);
  }
}

TEST_F(TiedHead, ACopyOfTheEmbeddingIsIgnored) {
  copy_embedding();
  const auto source = open_source(path(), nullptr, pool_);
  EXPECT_EQ(source->notes(), std::vector<std::string>());
  EXPECT_TRUE(parse_config(source->config_json(), "config.json").tied_head);
  const test::Rows tied = logits(*source);
  EXPECT_NE(tied, logits(test::tiny_model(kUntied)));
  Recipe recipe;
  recipe.type = &get_format("tq4");
  const auto compressor = open_compressor(path(), recipe, pool_);
  EXPECT_FALSE(compressor->contains("lm_head.weight"));
}

}  // namespace
}  // namespace walsh
