// Tests in which folder prefixes of a model are kept, and what they depend on.
#include "api/prefix_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "temporary_folder.h"
#include "threads.h"

namespace walsh {
namespace {

constexpr const char* kModel = WALSH_SOURCE_DIR "/models/walsh-tiny-13m";

TEST(PrefixFolderTest, NamesOfModelsStayInsideOfTheFolderAndApart) {
  EXPECT_EQ(prefix_folder("/cache", "Qwen3-0.6B"), "/cache/Qwen3-0.6B");
  EXPECT_EQ(prefix_folder("/cache", "org/name"), "/cache/org%2Fname");
  EXPECT_EQ(prefix_folder("/cache", "org%2Fname"), "/cache/org%252Fname");
  EXPECT_EQ(prefix_folder("/cache", ".."), "/cache/%2E.");
  EXPECT_EQ(prefix_folder("/cache", "a b"), "/cache/a%20b");
}

class PrefixFilesTest : public testing::Test {
 protected:
  LoadedModel load(const char* cache, ActivationMode activations = ActivationMode::automatic) {
    LoadOptions options;
    options.pool = &pool_;
    options.activations = activations;
    options.cache = {&get_cache_type(cache), &get_cache_type(cache), 32};
    return load_model(kModel, nullptr, options);
  }
  std::unique_ptr<PrefixStore> open(const LoadedModel& model, int64_t positions) {
    return open_prefix_files(model, positions, folder_.path(), 1 << 24,
                             [this](const std::string& text) { note_ = text; });
  }
  // Returns whether what was written for one model is read for the other.
  bool share(const LoadedModel& one, int64_t positions, const LoadedModel& other,
             int64_t other_positions) {
    const std::vector<int32_t> tokens(40, 7);
    const std::string owner;
    const auto writes = open(one, positions);
    writes->write({tokens, owner}, std::vector<std::byte>(8));
    writes->finish();
    return open(other, other_positions)->has({tokens, owner});
  }

  ThreadPool pool_{test::kThreads};
  test::TemporaryFolder folder_;
  std::string note_;
};

TEST_F(PrefixFilesTest, OnlyTheSameModelWithTheSameSettingsReadsThem) {
  const LoadedModel model = load("f16");
  EXPECT_TRUE(share(model, 256, load("f16"), 256));
  EXPECT_EQ(note_, "");
  EXPECT_FALSE(share(model, 256, model, 512));
  EXPECT_NE(note_.find("of another model"), std::string::npos) << note_;
  EXPECT_FALSE(share(model, 256, load("q8_0"), 256));
  EXPECT_FALSE(share(model, 256, load("f16", ActivationMode::f32), 256));
}

TEST_F(PrefixFilesTest, AFolderThatIsNoneIsRefused) {
  const LoadedModel model = load("f16");
  const std::string file = folder_.write("file", "x");
  const auto refusal = [&](const std::string& folder) {
    try {
      open_prefix_files(model, 256, folder, 1 << 24, [](const std::string&) {});
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(file), file + ": is no folder");
  EXPECT_NE(refusal(folder_.file("absent/cache")).find("No such file"), std::string::npos);
}

}  // namespace
}  // namespace walsh
