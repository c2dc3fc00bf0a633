// Tests checkpoints that store a model differently from how it is computed: as part of a larger
// model, with another order of rows, as small floats with scales.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "arch/composite.h"
#include "model/model_support.h"
#include "quantize/pipeline/open.h"
#include "quantize/pipeline/pipeline.h"
#include "temporary_folder.h"
#include "threads.h"

namespace walsh {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(StoredModel, OfSeveralPartsTheTextIsReadAndANoteSaysWhatIsLeftOut) {
  const CheckpointSource source = CheckpointSource::open(test::tiny_model("gemma3-vision-tiny"));
  EXPECT_THAT(source.names(), Contains("model.layers.0.self_attn.q_proj.weight"));
  EXPECT_THAT(source.names(), Not(Contains(HasSubstr("vision"))));
  EXPECT_THAT(source.names(), Not(Contains(HasSubstr("projector"))));
  ASSERT_EQ(source.notes().size(), 1u);
  EXPECT_THAT(source.notes()[0], HasSubstr("text part of a Gemma3ForConditionalGeneration"));
  EXPECT_THAT(source.notes()[0], HasSubstr("tensors of its other parts are left out"));
}

// Published Gemma 4 models have keys and values of layers that attend to those of earlier ones.
TEST(StoredModel, KeysThatNoLayerReadsAreLeftOut) {
  test::TemporaryFolder work;
  const std::string folder = work.file("model");
  std::filesystem::copy(test::tiny_model("gemma4-vision-tiny"), folder);
  nlohmann::json config = nlohmann::json::parse(std::ifstream(folder + "/config.json"));
  nlohmann::json& text = config["text_config"];
  text["layer_types"] = {"full_attention", "full_attention"};
  text["per_layer_config"] = nlohmann::json::object();
  text["num_kv_shared_layers"] = 1;
  std::ofstream(folder + "/config.json") << config.dump();
  const CheckpointSource source = CheckpointSource::open(folder);
  EXPECT_THAT(source.names(), Contains("model.layers.0.self_attn.k_proj.weight"));
  EXPECT_THAT(source.names(), Contains("model.layers.1.self_attn.q_proj.weight"));
  EXPECT_THAT(source.names(), Not(Contains(HasSubstr("layers.1.self_attn.k_"))));
  EXPECT_THAT(source.names(), Not(Contains(HasSubstr("layers.1.self_attn.v_"))));
}

TEST(StoredModel, ATensorIsCalledAsInItsFileWhereItIsRefused) {
  Checkpoint checkpoint = Checkpoint::open(test::tiny_model("gemma3-vision-tiny"));
  checkpoint.rename(text_names());
  const TensorInfo* norm = checkpoint.find("model.norm.weight");
  ASSERT_NE(norm, nullptr);
  EXPECT_THAT(norm->where(), HasSubstr("language_model"));
}

TEST(StoredModel, TwoTensorsOfOneNameAreRefused) {
  Checkpoint checkpoint = Checkpoint::open(test::tiny_model("llama31-tiny"));
  const NameRule rules[] = {{"model.layers.0.", "model.layers.1."}};
  EXPECT_THROW(checkpoint.rename(rules), Error);
}

TEST(StoredModel, MatricesInFp8AreFloatsAndTheirScalesAreNotSeen) {
  CheckpointSource source = CheckpointSource::open(test::tiny_model("ministral3-fp8-tiny"));
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  EXPECT_EQ(source.format_of(name).name, "f32");
  EXPECT_EQ(source.load(name).rows, 64);
  EXPECT_THAT(source.names(), Not(Contains(HasSubstr("scale"))));
  EXPECT_THAT(source.notes(), ElementsAre(HasSubstr("matrices in FP8 are decoded")));
}

// Writes a checkpoint in FP8 of DeepSeek's form as compressed-tensors stores it.
void write_compressed(const std::string& from, const test::TemporaryFolder& to) {
  std::ifstream in(from + "/model.safetensors", std::ios::binary);
  uint64_t length = 0;
  in.read(reinterpret_cast<char*>(&length), 8);
  std::string header(length, ' ');
  in.read(header.data(), static_cast<std::streamsize>(length));
  const std::string data{std::istreambuf_iterator<char>(in), {}};
  for (size_t at; (at = header.find("weight_scale_inv")) != std::string::npos;)
    header.replace(at, 16, "weight_scale");
  length = header.size();
  std::ofstream out(to.file("model.safetensors"), std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), 8);
  out << header << data;
  nlohmann::json config = nlohmann::json::parse(std::ifstream(from + "/config.json"));
  const nlohmann::json weights = {
      {"num_bits", 8}, {"type", "float"}, {"strategy", "block"}, {"block_structure", {32, 48}}};
  config["quantization_config"] = {
      {"quant_method", "compressed-tensors"},
      {"format", "float-quantized"},
      {"ignore", {"lm_head"}},
      {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
  std::ofstream(to.file("config.json")) << config.dump();
}

TEST(StoredModel, CompressedTensorsAreTheSameModelAsTheSameNumbersInAnotherForm) {
  ThreadPool pool(test::kThreads);
  test::TemporaryFolder work;
  const std::string original = test::tiny_model("llama-fp8-tiny");
  write_compressed(original, work);
  const auto logits = [&](const std::string& folder) {
    const auto source = open_source(folder, nullptr, pool);
    const ModelConfig config = parse_config(source->config_json(), "config.json");
    const Model model = Model::load(*source, config, {&pool, ActivationMode::automatic, {}});
    Session session(model, {64});
    return test::all_logits(session, test::random_tokens(40, config.vocab, 1));
  };
  EXPECT_EQ(logits(work.path()), logits(original));
  EXPECT_THAT(CheckpointSource::open(work.path()).notes(),
              ElementsAre(HasSubstr("matrices in compressed-tensors are decoded")));
}

// Both tables that tokens look up are coded, too.
TEST(StoredModel, EveryKindOfCodeHoldsAModelWithEmbeddingsOfLayers) {
  ThreadPool pool(test::kThreads);
  const std::string folder = test::tiny_model("gemma4-tiny");
  const auto logits = [&](const char* type) {
    Recipe recipe;
    recipe.type = recipe.embed_type = &get_format(type);
    const auto source = open_source(folder, &recipe, pool);
    const ModelConfig config = parse_config(source->config_json(), "config.json");
    const Model model = Model::load(*source, config, {&pool, ActivationMode::automatic, {}});
    EXPECT_EQ(model.layer_embedding.stored.format->dense, std::string(type) == "f32");
    Session session(model, {64});
    return test::all_logits(session, test::random_tokens(40, config.vocab, 1));
  };
  const auto exact = logits("f32");
  const std::pair<const char*, double> bounds[] = {
      {"q8_0", 1e-3}, {"tq4+4", 5e-3}, {"tq4", 0.1}, {"tc3", 0.2}, {"pq3", 0.2}};
  for (const auto& [type, most] : bounds) {
    const double kld = test::divergence(exact, logits(type));
    EXPECT_GT(kld, 0) << type;
    EXPECT_LT(kld, most) << type;
  }
}

class StoredModelFile : public testing::TestWithParam<const char*> {};

// walsh's own file stores the model as it is computed, however the checkpoint stores it.
TEST_P(StoredModelFile, HasTheLogitsOfTheCheckpointCompressedWhileItIsLoaded) {
  ThreadPool pool(test::kThreads);
  const std::string folder = test::tiny_model(GetParam());
  Recipe recipe;
  recipe.type = &get_format("tq4+4");
  const auto logits = [&](WeightSource& source) {
    const ModelConfig config = parse_config(source.config_json(), "config.json");
    const Model model = Model::load(source, config, {&pool, ActivationMode::automatic, {}});
    Session session(model, {64});
    return test::all_logits(session, test::random_tokens(40, config.vocab, 1));
  };
  const std::string file = std::filesystem::temp_directory_path() /
                           ("walsh_stored_" + std::string(GetParam()) + std::to_string(getpid()));
  const auto compressor = open_compressor(folder, recipe, pool);
  quantize_to_file(*compressor, file, {});
  const auto expected = logits(*open_source(folder, &recipe, pool));
  EXPECT_EQ(logits(*open_source(file, nullptr, pool)), expected);
  std::filesystem::remove(file);
}

INSTANTIATE_TEST_SUITE_P(Models, StoredModelFile,
                         testing::Values("gemma3-vision-tiny", "glm4-tiny", "llama-fp8-tiny",
                                         "ministral3-vision-tiny", "gemma4-tiny",
                                         "gemma4-moe-tiny"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace walsh
