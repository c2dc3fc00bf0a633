// Tests every tiny checkpoint on the GPU against transformers, token by token; and its prompts
// against that, since prompts use inputs in the weights' type.
#include "model/golden.h"
#include "gpu_models.h"

namespace walsh {
namespace {

// A rope that depends on the length of the context is that of 256 positions in most of them.
int64_t positions_of(const test::Golden& golden) {
  return std::max<int64_t>(256, static_cast<int64_t>(golden.tokens.size() + golden.greedy.size()));
}

class GpuGolden : public test::GpuTest, public testing::WithParamInterface<std::string> {};

TEST_P(GpuGolden, LogitsAndGreedyTextEqualTransformers) {
  const std::string folder = test::model_folder(GetParam());
  if (folder.empty()) GTEST_SKIP() << GetParam() << " is not here";
  CheckpointSource source = CheckpointSource::open(folder);
  if (refused(source)) return;
  const Model model = load(source, gpu_);
  const test::Golden golden = test::read_golden(GetParam());
  Session session(model, {positions_of(golden)});
  std::vector<std::vector<float>> rows;
  for (const int32_t token : golden.tokens)
    rows.push_back(test::all_logits(session, {token}).back());
  test::expect_logits(golden, rows);
  EXPECT_EQ(test::continue_greedily(session, rows.back(), golden.greedy.size()), golden.greedy);
}

TEST_P(GpuGolden, PromptsAreCloseToTransformers) {
  constexpr double kTypeOfTheWeights = 3e-2;  // bf16 rows
  const std::string folder = test::model_folder(GetParam());
  if (folder.empty()) GTEST_SKIP() << GetParam() << " is not here";
  CheckpointSource source = CheckpointSource::open(folder);
  if (refused(source)) return;
  const Model model = load(source, gpu_);
  const test::Golden golden = test::read_golden(GetParam());
  Session session(model, {positions_of(golden)});
  test::expect_rounded_logits(golden, test::all_logits(session, golden.tokens), kTypeOfTheWeights,
                              10 * kTypeOfTheWeights);
}

INSTANTIATE_TEST_SUITE_P(Models, GpuGolden, testing::ValuesIn(test::tiny_models()),
                         test::model_name);

}  // namespace
}  // namespace walsh
