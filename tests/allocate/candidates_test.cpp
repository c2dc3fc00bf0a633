#include "allocate/candidates.h"

#include <gtest/gtest.h>

#include "allocate/tiny_model.h"
#include "threads.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using test::formats;
using test::recipe_of;

class CandidatesTest : public testing::Test {
 protected:
  ThreadPool pool_{test::kThreads};
  test::TinyModel model_;
};

TEST_F(CandidatesTest, TheRecipeNamesWhatDiffersFromMost) {
  const Candidates candidates(model_.opener(pool_), recipe_of("tq2"), formats({"tq2", "tq3"}),
                              true);
  Assignment assignment(candidates.tensors().size(), 1);
  assignment.back() = 0;
  const Recipe recipe = candidates.recipe(assignment);
  EXPECT_EQ(recipe.type->name, "tq3");
  ASSERT_EQ(recipe.rules.size(), 2u) << "the embedding is always named";
  const auto compressor = open_compressor(model_.path(), recipe, pool_);
  for (size_t t = 0; t < assignment.size(); ++t)
    EXPECT_EQ(&compressor->format_of(candidates.tensors()[t].name),
              &candidates.format(t, assignment[t]));
}

TEST(ExpertCandidates, ExpertsOfOneKindOfALayerGetOneFormat) {
  ThreadPool pool(test::kThreads);
  const std::string folder = std::string(WALSH_TEST_DATA) + "/models/qwen3-moe-tiny";
  const auto open = [&](const Recipe& recipe) { return open_compressor(folder, recipe, pool); };
  Candidates candidates(open, recipe_of("tq3"), formats({"tq3", "tq4"}), false);
  ASSERT_EQ(candidates.tensors().size(), 2 * (4 + 3u)) << "and no router";
  size_t kinds = 0;
  Assignment assignment;
  for (size_t t = 0; t < candidates.tensors().size(); ++t) {
    const CandidateTensor& tensor = candidates.tensors()[t];
    const bool experts = tensor.name.find('*') != std::string::npos;
    kinds += experts ? 1 : 0;
    EXPECT_EQ(tensor.members.size(), experts ? 8u : 1u) << tensor.name;
    uint64_t bytes = 0;
    for (size_t i = 0; i < tensor.members.size(); ++i)
      bytes += tensor_bytes(get_format("tq4"), tensor.rows, tensor.cols);
    EXPECT_EQ(candidates.bytes(t, 1), bytes);
    assignment.push_back(tensor.name.find("layers.1.mlp.experts.*.up") == std::string::npos ? 0
                                                                                            : 1);
  }
  EXPECT_EQ(kinds, 6u);
  const Recipe recipe = candidates.recipe(assignment);
  EXPECT_EQ(recipe.rules.size(), 1u);
  const auto compressor = open(recipe);
  for (const TensorPlan& plan : compressor->tensors()) {
    if (plan.expert < 0) continue;
    const bool chosen = plan.name.find("layers.1.") != std::string::npos &&
                        plan.name.find("up_proj") != std::string::npos;
    EXPECT_EQ(plan.format, &get_format(chosen ? "tq4" : "tq3")) << plan.name;
  }
}

}  // namespace
}  // namespace walsh
