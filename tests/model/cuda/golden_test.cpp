// Every tiny checkpoint on the GPU against transformers, token by token; and its prompts against
// that, since prompts have inputs in the type of the weights.
#include <algorithm>

#include "gpu_models.h"
#include "model/golden.h"
#include "model/support.h"

namespace walsh {
namespace {

// Attention rounds queries and the weights of the softmax to fp16.
constexpr double kHalfPrecision = 2e-3;

class GpuGolden : public test::GpuTest, public testing::WithParamInterface<std::string> {};

TEST_P(GpuGolden, LogitsAndGreedyTextEqualTransformers) {
  const std::string folder = test::model_folder(GetParam());
  if (folder.empty()) GTEST_SKIP() << GetParam() << " is not here";
  CheckpointSource source = CheckpointSource::open(folder);
  const Model model = load(source, gpu_);
  const test::Golden golden = test::read_golden(GetParam());
  Session session(model, {256});
  std::vector<std::vector<float>> rows;
  for (const int32_t token : golden.tokens)
    rows.push_back(test::all_logits(session, {token}).back());
  test::expect_logits(golden, rows, kHalfPrecision);
  EXPECT_EQ(test::continue_greedily(session, rows.back(), golden.greedy.size()), golden.greedy);
}

TEST_P(GpuGolden, PromptsAreCloseToTransformers) {
  constexpr double kTypeOfTheWeights = 3e-2;  // bf16 rows
  const std::string folder = test::model_folder(GetParam());
  if (folder.empty()) GTEST_SKIP() << GetParam() << " is not here";
  CheckpointSource source = CheckpointSource::open(folder);
  const Model model = load(source, gpu_);
  const test::Golden golden = test::read_golden(GetParam());
  Session session(model, {256});
  test::expect_logits(golden, test::all_logits(session, golden.tokens), kTypeOfTheWeights);
}

std::string name_of(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// Those whose kinds of layers exist on a GPU.
std::vector<std::string> models() {
  std::vector<std::string> names = test::tiny_models();
  std::erase_if(names, [](const std::string& name) {
    return !why_not(test::read_config(test::tiny_model(name)), Device{true, 0}).empty();
  });
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, GpuGolden, testing::ValuesIn(models()), name_of);

}  // namespace
}  // namespace walsh
