#include "weights/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "temporary_folder.h"
#include "walsh/error.h"

namespace walsh {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

class ModelFolderTest : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& text = "x") const {
    const fs::path path = fs::path(folder()) / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const ModelPlace& place : models_in(folder()))
      names.push_back(place.name);
    return names;
  }
  std::string folder() const { return folder_.path(); }

 private:
  test::TemporaryFolder folder_;
};

TEST_F(ModelFolderTest, FilesAndFoldersAreModels) {
  put("llama.gguf", "12345");
  put("qwen/config.json");
  put("qwen/model.safetensors");
  put("gemma/gemma-q8.gguf");
  put("gemma/mmproj-f16.gguf");
  put("two/a.gguf");
  put("two/b.gguf");
  put("notes.txt");
  put("empty/readme.md");
  put(".hidden.gguf");
  fs::create_symlink("nowhere", fs::path(folder()) / "broken.gguf");
  EXPECT_THAT(names(), ElementsAre("gemma", "llama", "qwen", "two/a", "two/b"));
  const std::vector<ModelPlace> models = models_in(folder());
  EXPECT_EQ(models[0].path, folder() + "/gemma/gemma-q8.gguf");
  EXPECT_EQ(models[1].bytes, 5u);
  EXPECT_EQ(models[2].path, folder() + "/qwen");
  EXPECT_EQ(models[2].bytes, 2u);
}

TEST_F(ModelFolderTest, AFileThatIsNamedAsAFolderKeepsItsExtension) {
  put("qwen/config.json");
  put("qwen.gguf");
  EXPECT_THAT(names(), ElementsAre("qwen", "qwen.gguf"));
}

TEST_F(ModelFolderTest, NamesAreUtf8OnOneLine) {
  put("b\xff.gguf");
  put("caf\u00e9\n.gguf");
  EXPECT_THAT(names(), ElementsAre("b\\xff", "caf\u00e9"));
  EXPECT_EQ(model_name(folder() + "/b\xff.gguf"), "b\\xff");
}

TEST_F(ModelFolderTest, RepositoriesOfTheCacheHaveTheirNames) {
  put("models--Qwen--Qwen3-0.6B/refs/main", "abc");
  put("models--Qwen--Qwen3-0.6B/snapshots/abc/config.json");
  put("models--Qwen--Absent/refs/main", "abc");
  EXPECT_THAT(names(), ElementsAre("Qwen/Qwen3-0.6B"));
}

TEST_F(ModelFolderTest, AFolderWithAConfigIsAModelItself) {
  EXPECT_TRUE(is_folder_of_models(folder()));
  EXPECT_THAT(names(), IsEmpty());
  put("config.json");
  EXPECT_FALSE(is_folder_of_models(folder()));
  EXPECT_FALSE(is_folder_of_models(folder() + "/config.json"));
  EXPECT_FALSE(is_folder_of_models(folder() + "/absent"));
  EXPECT_THROW(models_in(folder() + "/absent"), Error);
}

TEST_F(ModelFolderTest, NamesAreThoseOfFilesFoldersAndRepositories) {
  EXPECT_EQ(model_name("/models/llama.gguf"), "llama");
  EXPECT_EQ(model_name("/models/qwen/"), "qwen");
  EXPECT_EQ(model_name("/hub/models--Qwen--Q/snapshots/abc"), "Qwen/Q");
}

}  // namespace
}  // namespace walsh
