// A GGUF file of llama.cpp's converter gives the results of the checkpoint that it was made from,
// for every architecture.
#include <gtest/gtest.h>

#include <set>

#include "gguf_recipe.h"
#include "import/gguf_family.h"
#include "model/golden.h"
#include "temporary_folder.h"
#include "threads.h"

namespace walsh {
namespace {

class GgufModels : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    test::copy_gguf_source(GetParam(), folder_);
    test::write_gguf_recipe(GetParam(), file_);
  }

  test::TemporaryFolder work_;
  const std::string folder_ = work_.file("folder"), file_ = work_.file("model.gguf");
};

std::vector<float> values(CheckpointSource& source, const std::string& name) {
  const Tensor tensor = source.load(name);
  std::vector<float> result(static_cast<size_t>(tensor.rows * tensor.cols));
  decode_rows(tensor, 0, tensor.rows, result.data());
  return result;
}

TEST_P(GgufModels, EveryTensorIsThatOfTheCheckpoint) {
  CheckpointSource folder = CheckpointSource::open(folder_), file = CheckpointSource::open(file_);
  const ModelConfig config = parse_config(folder.config_json(), "config.json");
  std::set<std::string> expected;
  for (const TensorShape& shape : model_tensors(config)) {
    SCOPED_TRACE(shape.name);
    expected.insert(shape.name);
    ASSERT_TRUE(file.contains(shape.name));
    const auto a = values(folder, shape.name), b = values(file, shape.name);
    ASSERT_EQ(a.size(), b.size());
    // Gains that have 1 added in the file lose what that sum does not hold, and rates are the
    // logarithms of an exponential.
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_NEAR(a[i], b[i], 1.2e-7 * std::max(1.0f, 4 * std::abs(a[i]))) << i;
  }
  const auto names = file.names();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()), expected);
}

TEST_P(GgufModels, LogitsAreThoseOfTheCheckpoint) {
  ThreadPool pool(test::kThreads);
  const Model folder = test::load_folder(folder_, pool), file = test::load_folder(file_, pool);
  const test::Golden golden = test::read_golden(GetParam());
  const auto positions = std::max<int64_t>(256, static_cast<int64_t>(golden.tokens.size()));
  Session of_folder(folder, {positions}), of_file(file, {positions});
  const auto expected = test::all_logits(of_folder, golden.tokens);
  const auto found = test::all_logits(of_file, golden.tokens);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].size(), expected[i].size());
    float largest = 0, worst = 0;
    for (size_t k = 0; k < found[i].size(); ++k) {
      largest = std::max(largest, std::abs(expected[i][k]));
      worst = std::max(worst, std::abs(found[i][k] - expected[i][k]));
    }
    ASSERT_LE(worst, 2e-5f * largest) << "row " << i;
  }
}

std::string case_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, GgufModels, testing::ValuesIn(test::gguf_recipes()), case_name);

TEST(GgufFamilies, EachHasAModelOfTheConverter) {
  std::set<std::pair<std::string, std::string>> found;
  for (const std::string& model : test::gguf_recipes()) {
    found.emplace(test::gguf_recipe(model)["metadata"][0][2],
                  test::read_config(test::tiny_model(model)).family);
  }
  for (const GgufFamily& family : gguf_families()) {
    EXPECT_TRUE(found.contains({std::string(family.architecture), std::string(family.model_type)}))
        << family.architecture << ": " << family.model_type;
  }
}

}  // namespace
}  // namespace walsh
