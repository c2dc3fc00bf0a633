// Tests that models in the cache of Hugging Face's tools are found by their names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command.h"
#include "walsh/quantizer.h"

namespace walsh {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class HubCache : public CommandTest {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    add("org/tiny", "abc123");
  }

  // Links the files of a model as the tools do, and makes the revision its main one.
  void add(const std::string& name, const std::string& commit, const std::string& branch = "main") {
    const fs::path repository = cache() / ("models--org--" + name.substr(name.find('/') + 1));
    fs::create_directories(repository / "refs");
    spill((repository / "refs" / branch).string(), commit);
    const fs::path snapshot = repository / "snapshots" / commit;
    fs::create_directories(snapshot);
    for (const auto& entry : fs::directory_iterator(model()))
      fs::create_symlink(entry.path(), snapshot / entry.path().filename());
  }

  fs::path cache() const { return fs::path(file("home")) / "hub"; }
  CommandResult in_cache(const std::vector<std::string>& arguments) const {
    return walsh(arguments, "unset HF_HUB_CACHE; export HF_HOME=" + quoted(file("home")) + ";");
  }
};

TEST_F(HubCache, AModelIsFoundByItsName) {
  const CommandResult named =
      in_cache({"run", "org/tiny", "--raw", "-p", "London", "-n", "4", "--temp", "0"});
  EXPECT_EQ(named.status, 0) << named.err;
  EXPECT_EQ(named.out,
            walsh({"run", model(), "--raw", "-p", "London", "-n", "4", "--temp", "0"}).out);
  EXPECT_EQ(in_cache({"inspect", "org/tiny"}).status, 0);
  EXPECT_EQ(
      in_cache({"quantize", "org/tiny", file("out.gguf"), "--type", "tq4", "--effort", "fast"})
          .status,
      0);
}

TEST_F(HubCache, ModelsAreQuantizedByNameThroughTheLibrary) {
  setenv("HF_HUB_CACHE", cache().c_str(), 1);
  CompressOptions options;
  options.fast = true;
  EXPECT_NO_THROW(::walsh::quantize("org/tiny", file("named.gguf"), options, 2));
  unsetenv("HF_HUB_CACHE");
  EXPECT_FALSE(inspect(file("named.gguf")).tensors.empty());
}

TEST_F(HubCache, ARevisionIsABranchOrACommit) {
  add("tiny", "def456", "next");
  for (const char* name : {"org/tiny@next", "org/tiny@def456", "org/tiny@abc123"})
    EXPECT_EQ(in_cache({"inspect", name}).status, 0) << name;
  EXPECT_EQ(in_cache({"inspect", "org/tiny@other"}).status, 5);
}

TEST_F(HubCache, AFolderOfThatNameIsTakenFirst) {
  const fs::path here = file("here");
  fs::create_directories(here / "org" / "tiny");
  const CommandResult result =
      walsh({"inspect", "org/tiny"},
            "export HF_HOME=" + quoted(file("home")) + "; cd " + quoted(here.string()) + ";");
  EXPECT_NE(result.status, 0);  // it is empty
  EXPECT_THAT(result.err, HasSubstr("org/tiny"));
}

TEST_F(HubCache, AModelThatIsNotThereIsNamedWithTheCommandThatFetchesIt) {
  const CommandResult result = in_cache({"run", "org/none", "-p", "a"});
  EXPECT_EQ(result.status, 5);
  EXPECT_THAT(result.err, HasSubstr("hf download org/none"));
  EXPECT_THAT(result.err, HasSubstr(cache().string()));
}

TEST_F(HubCache, ListShowsWhatIsThereAndWhatRuns) {
  const fs::path broken = cache() / "models--org--broken";
  fs::create_directories(broken / "refs");
  fs::create_directories(broken / "snapshots" / "1");
  spill((broken / "refs" / "main").string(), "1");
  spill((broken / "snapshots" / "1" / "config.json").string(), "{}");
  fs::create_directories(cache() / "models--org--not\nplain" / "snapshots" / "1");
  const CommandResult result = in_cache({"list"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("org/tiny"));
  EXPECT_THAT(result.out, HasSubstr("yes, llama"));
  EXPECT_THAT(result.out, HasSubstr("org/broken"));
  EXPECT_THAT(result.out, HasSubstr("no: "));
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 2) << result.out;
  EXPECT_THAT(in_cache({"list", "--json"}).out, HasSubstr("\"name\": \"org/tiny\""));
}

TEST_F(HubCache, AnEmptyCacheIsNoError) {
  const CommandResult result = walsh({"list"}, "export HF_HUB_CACHE=/nonexistent;");
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out, HasSubstr("hf download"));
}

}  // namespace
}  // namespace walsh
