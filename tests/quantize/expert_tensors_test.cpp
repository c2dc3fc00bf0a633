// Experts as checkpoints store them, and routers in a compressed model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "quantize/pipeline/compressor.h"
#include "quantize/source/checkpoint_source.h"
#include "tiny_checkpoint.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using testing::HasSubstr;

std::vector<float> values_of(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.rows * tensor.cols));
  decode_rows(tensor, 0, tensor.rows, values.data());
  return values;
}

class ExpertTensors : public testing::Test {
 protected:
  ExpertTensors() {
    tiny_.add("all", {3, 4, 5}, 1.0f);
    tiny_.save();
  }
  // All of "all" that is not of interest is left to the other names of the checkpoint.
  CheckpointSource source(const std::vector<TensorPart>& parts) const {
    return CheckpointSource(Checkpoint::open(tiny_.path()), parts);
  }
  float at(size_t e, size_t i, size_t j) { return tiny_.values("all")[(e * 4 + i) * 5 + j]; }

  TinyCheckpoint tiny_{"expert_tensors"};
};

TEST_F(ExpertTensors, AnExpertIsRowsOfATensorOfAll) {
  CheckpointSource from = source({{"one", "all", 0, 2, 0, 0, {3, 4, 5}, 5, 2 * 20 + 2 * 5, 5, 1}});
  const Tensor tensor = from.load("one");
  EXPECT_EQ(tensor.rows, 2);
  const std::vector<float> values = values_of(tensor);
  for (size_t r = 0; r < 2; ++r)
    for (size_t c = 0; c < 5; ++c)
      EXPECT_EQ(values[r * 5 + c], at(2, 2 + r, c));
  EXPECT_THAT(from.names(),
              testing::AllOf(testing::Contains("one"), testing::Not(testing::Contains("all"))));
}

TEST_F(ExpertTensors, OrColumnsThatAlternate) {
  // Every second of the four "columns" of the last dimension but one, turned.
  CheckpointSource from = source({{"one", "all", 0, 2, 0, 0, {3, 4, 5}, 4, 20 + 1, 2, 5}});
  const std::vector<float> values = values_of(from.load("one"));
  for (size_t r = 0; r < 2; ++r)
    for (size_t c = 0; c < 4; ++c)
      EXPECT_EQ(values[r * 4 + c], at(1, c, 2 * r + 1));
}

TEST_F(ExpertTensors, OfUnequalShapesAreRefusedWithBoth) {
  CheckpointSource from = source({{"one", "all", 0, 2, 0, 0, {3, 5, 5}, 5, 0, 5, 1}});
  try {
    from.load("one");
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_input);
    EXPECT_THAT(e.what(), HasSubstr("tensor all: shape is [3, 4, 5], expected [3, 5, 5]"));
  }
}

TEST_F(ExpertTensors, StoredOneByOneAreTheCheckpointsOwn) {
  CheckpointSource from = source({{"up", "not_there", 0, 160, 0, 0, {1, 160, 96}, 96, 0, 96, 1}});
  EXPECT_EQ(values_of(from.load("up")), tiny_.values("up"));
}

// A checkpoint in which one router reads what gate and up read.
class Routers : public testing::Test {
 protected:
  Routers() {
    tiny_.add("router", {6, TinyCheckpoint::kHidden}, 0.05f);
    tiny_.save();
  }
  ModelPlan plan() const {
    ModelPlan plan = tiny_.plan();
    plan.sites[1].plain = {"router"};
    return plan;
  }
  static Recipe recipe() {
    Recipe recipe;
    recipe.type = &get_format("tq3");
    return recipe;
  }
  std::unique_ptr<Compressor> compress(const Recipe& recipe) {
    return std::make_unique<Compressor>(Checkpoint::open(tiny_.path()), plan(), recipe, pool_);
  }

  TinyCheckpoint tiny_{"routers"};
  ThreadPool pool_{2};
};

TEST_F(Routers, GetTheScalesOfTheirInputAndAreNotCoded) {
  const auto source = compress(recipe());
  const std::span<const float> scales = source->column_scales("gate");
  ASSERT_EQ(scales.size(), static_cast<size_t>(TinyCheckpoint::kHidden));
  const Tensor router = source->load("router");
  EXPECT_EQ(router.format, &dense_format(DType::f32));
  const std::vector<float> found = values_of(router), &original = tiny_.values("router");
  double changed = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i], original[i] * scales[i % scales.size()]);
    changed += std::fabs(found[i] - original[i]);
  }
  EXPECT_GT(changed, 0);
  EXPECT_TRUE(source->column_scales("router").empty());
}

TEST_F(Routers, StayAsTheyAreWithoutBalancing) {
  Recipe plain = recipe();
  plain.balance = false;
  EXPECT_EQ(values_of(compress(plain)->load("router")), tiny_.values("router"));
}

TEST_F(Routers, NoRuleGivesThemAFormat) {
  Recipe named = recipe();
  named.rules.push_back(parse_override("router=tq4"));
  EXPECT_THROW(compress(named), Error);
  named.rules = {parse_override("re:router|gate=tq4")};
  EXPECT_EQ(compress(named)->format_of("router").dense, true);
}

}  // namespace
}  // namespace walsh
