// Checkpoints that were saved without a head, and what sentence-transformers' files say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/checkpoint.h"
#include "io/json.h"
#include "io/safetensors_writer.h"
#include "io/sentence_files.h"
#include "temporary_folder.h"
#include "weights/checkpoint_source.h"
#include "weights/open.h"

namespace walsh {
namespace {

using test::TemporaryFolder;
using testing::HasSubstr;

constexpr std::string_view kModel = WALSH_SOURCE_DIR "/tests/data/models/";

// Writes a tiny model as one that has no head, with names that lack "model.".
void write_base(const std::string& name, const TemporaryFolder& to) {
  const Checkpoint whole = Checkpoint::open(std::string(kModel) + name);
  SafetensorsWriter writer;
  const auto base_name = [](const TensorInfo& info) {
    return info.name.starts_with("model.") ? info.name.substr(6) : std::string();
  };
  for (const TensorInfo& info : whole.tensors())
    if (!base_name(info).empty()) writer.add(base_name(info), info.dtype_text, info.shape);
  writer.open(to.file("model.safetensors"));
  for (const TensorInfo& info : whole.tensors())
    if (!base_name(info).empty()) writer.write(base_name(info), whole.data(info));
  writer.commit();
  to.write("config.json", whole.config_json());
}

void expect_same_tensors(const std::string& name, WeightSource& base) {
  CheckpointSource whole = CheckpointSource::open(std::string(kModel) + name);
  for (const std::string& tensor : base.names()) {
    const Tensor found = base.load(tensor), expected = whole.load(tensor);
    ASSERT_EQ(found.data.size(), expected.data.size()) << tensor;
    EXPECT_TRUE(std::equal(found.data.begin(), found.data.end(), expected.data.begin())) << tensor;
  }
}

TEST(BaseModel, NamesWithoutPrefixAreThoseOfTheModel) {
  const TemporaryFolder folder;
  write_base("qwen3-tiny", folder);
  const auto source = open_stored(folder.path());
  const ModelConfig config = read_config(*source);
  EXPECT_TRUE(config.tied_head);
  EXPECT_TRUE(source->contains(config.embedding));
  EXPECT_TRUE(source->notes().empty());
  expect_same_tensors("qwen3-tiny", *source);
}

TEST(BaseModel, TheEmbeddingStandsInForAHeadThatIsMissingAndANoteSaysSo) {
  const TemporaryFolder folder;
  write_base("mistral-full-tiny", folder);
  ASSERT_FALSE(read_config(*open_stored(std::string(kModel) + "mistral-full-tiny")).tied_head);
  const auto source = open_stored(folder.path());
  EXPECT_TRUE(read_config(*source).tied_head);
  ASSERT_EQ(source->notes().size(), 1u);
  EXPECT_THAT(source->notes()[0], HasSubstr("has no output head"));
  expect_same_tensors("mistral-full-tiny", *source);
}

constexpr const char* kModules =
    R"([{"idx":0,"path":"","type":"sentence_transformers.models.Transformer"},
        {"idx":1,"path":"1_Pooling","type":"sentence_transformers.models.Pooling"},
        {"idx":2,"path":"2_Normalize","type":"sentence_transformers.models.Normalize"}])";

// Writes modules.json and the config of its pooling.
void write_modules(const TemporaryFolder& to, const std::string& modules,
                   const std::string& pooling) {
  to.write("modules.json", modules);
  std::filesystem::create_directories(to.file("1_Pooling"));
  to.write("1_Pooling/config.json", pooling);
}

TEST(SentenceFiles, PoolingAndLengthAreRead) {
  const TemporaryFolder folder;
  EXPECT_EQ(embedding_of_folder(folder.path()), "");
  EXPECT_EQ(embedding_of_folder(folder.file("absent")), "");
  const std::pair<const char*, const char*> cases[] = {
      {R"({"pooling_mode_cls_token":false,"pooling_mode_lasttoken":true})", "last"},
      {R"({"pooling_mode_mean_tokens":true,"include_prompt":true})", "mean"},
      {R"({"pooling_mode_cls_token":true})", "cls"},
      {R"({"pooling_mode":"lasttoken"})", "last"},
      {R"({"pooling_mode":"mean"})", "mean"}};
  for (const auto& [config, pooling] : cases) {
    write_modules(folder, kModules, config);
    const Json read = parse_json(embedding_of_folder(folder.path()), "test");
    EXPECT_EQ(read, Json({{"pooling", pooling}, {"normalize", true}})) << config;
  }
  std::string modules = kModules;
  modules.erase(modules.find(",\n        {\"idx\":2"));
  write_modules(folder, modules + "]", cases[0].first);
  EXPECT_EQ(parse_json(embedding_of_folder(folder.path()), "test")["normalize"], false);
}

TEST(SentenceFiles, OthersAreRefusedByName) {
  const std::string usual = R"({"pooling_mode_lasttoken":true})";
  const auto replaced = [](const std::string& from, const std::string& to) {
    std::string modules = kModules;
    return modules.replace(modules.find(from), from.size(), to);
  };
  const std::tuple<std::string, std::string, std::string> cases[] = {
      {kModules, R"({"pooling_mode_max_tokens":true})", "its pooling is max"},
      {kModules, R"({"pooling_mode_cls_token":true,"pooling_mode_lasttoken":true})", "several"},
      {kModules, "{}", "names no pooling"},
      {kModules, "[]", "expected an object"},
      {replaced("models.Normalize", "models.Dense"), usual, "has a module sentence_transformers"},
      {replaced("\"1_Pooling\"", "\"../1_Pooling\""), usual, "is not a plain name of a folder"},
      {replaced("\"1_Pooling\"", "\"..\""), usual, "is not a plain name of a folder"},
      {replaced("\"1_Pooling\"", "\"absent\""), usual, "absent/config.json"},
      {"{}", usual, "expected a list"},
      {"[3]", usual, "the integer 3 in the list"},
      {"[]", usual, "has no module that pools"},
      {"[", usual, "modules.json"}};
  for (const auto& [modules, pooling, message] : cases) {
    const TemporaryFolder folder;
    write_modules(folder, modules, pooling);
    try {
      embedding_of_folder(folder.path());
      ADD_FAILURE() << message;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(message));
    }
  }
}

}  // namespace
}  // namespace walsh
