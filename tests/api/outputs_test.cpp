#include "api/outputs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "walsh/error.h"
#include "walsh/quantizer.h"

namespace walsh {
namespace {

namespace fs = std::filesystem;

class Outputs : public testing::Test {
 protected:
  Outputs() {
    fs::copy(WALSH_TEST_DATA "/models/llama31-tiny", folder_, fs::copy_options::recursive);
  }
  ~Outputs() override { fs::remove_all(folder_); }

  std::string file(const std::string& name) const { return folder_ / name; }
  static void expect_usage(const std::string& where, const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage) << e.what();
      EXPECT_EQ(e.where(), where) << e.what();
      return;
    }
    ADD_FAILURE() << where << " was accepted";
  }

  const fs::path folder_ =
      fs::temp_directory_path() / ("walsh_outputs_" + std::to_string(getpid()));
};

TEST_F(Outputs, AllFilesOfACheckpointAreInputs) {
  const std::string model = WALSH_SOURCE_DIR "/models/walsh-tiny-13m";
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(model)) {
    const std::string name = entry.path().filename();
    if (name == "README.md" || name == "training.json") continue;  // not read
    expect_usage(entry.path(), [&] { check_outputs({"", entry.path()}, model, {}); });
    ++files;
  }
  EXPECT_GE(files, 6u);
  std::ofstream(file("notes.txt")) << "no part of the model";
  check_outputs({file("notes.txt"), file("new")}, folder_, {});
  expect_usage(file("notes.txt"), [&] {
    check_outputs({file("notes.txt")}, folder_, {"", file("notes.txt")});
  });
}

// A checkpoint with shards has no model.safetensors; one that is put there would be read instead.
TEST_F(Outputs, NoneBecomesAPartOfTheCheckpoint) {
  fs::rename(file("model.safetensors"), file("model-00001-of-00001.safetensors"));
  std::ofstream index(file("model.safetensors.index.json"));
  index << R"({"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}})";
  index.close();
  for (const char* name :
       {"model.safetensors", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"}) {
    if (fs::exists(file(name))) continue;
    expect_usage(file(name), [&] { check_outputs({file(name)}, folder_, {}); });
    EXPECT_FALSE(fs::exists(file(name)));
  }
  expect_usage(file("model.safetensors"),
               [&] { quantize(folder_, file("model.safetensors"), {}, 1); });
  fs::create_directory(file("other"));
  check_outputs({file("other/model.safetensors"), file("model.gguf")}, folder_, {});
}

TEST_F(Outputs, NoTwoAreTheSameFile) {
  expect_usage(folder_ / "." / "new", [&] {
    check_outputs({file("new"), folder_ / "." / "new"}, folder_, {});
  });
  std::ofstream(file("old")) << "";
  fs::create_symlink("old", file("link"));
  expect_usage(file("link"), [&] { check_outputs({file("old"), file("link")}, folder_, {}); });
}

TEST_F(Outputs, TheLibraryWritesOverNoInput) {
  CompressOptions options;
  for (const char* name : {"model.safetensors", "config.json"}) {
    const auto size = fs::file_size(file(name));
    expect_usage(file(name), [&] { quantize(folder_, file(name), options, 1); });
    EXPECT_EQ(fs::file_size(file(name)), size);
  }
}

}  // namespace
}  // namespace walsh
