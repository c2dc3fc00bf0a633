#include "allocate/allocate.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "allocate/self_text.h"
#include "allocate/tiny_model.h"
#include "quantize/pipeline/pipeline.h"
#include "threads.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using test::formats;
using test::recipe_of;

class AllocateTest : public testing::Test {
 protected:
  AllocateOptions bits(double bits_per_weight) const {
    AllocateOptions options;
    options.bits_per_weight = bits_per_weight;
    options.candidates = formats({"tq2", "tq3", "tq4"});
    options.text = test::TinyModel::text(256);
    options.ctx = 32;
    options.windows = 4;
    options.evaluations = 4;
    return options;
  }
  Allocation run(const AllocateOptions& options, const Recipe& base = recipe_of("tq2")) {
    LoadOptions load;
    load.pool = &pool_;
    return allocate(model_.opener(pool_), base, options, load);
  }
  uint64_t written_bytes(const Recipe& recipe) {
    const auto compressor = open_compressor(model_.path(), recipe, pool_);
    const std::string file = model_.path() + "/out.gguf";
    quantize_to_file(*compressor, file, {});
    return std::filesystem::file_size(file);
  }

  ThreadPool pool_{test::kThreads};
  test::TinyModel model_;
};

TEST_F(AllocateTest, KeepsTheBudgetAndSaysWhatItChose) {
  const Allocation a = run(bits(3.3));
  EXPECT_LE(a.allocated.bits_per_weight, 3.3);
  EXPECT_GT(a.allocated.bits_per_weight, 3.0);
  EXPECT_LE(a.uniform.bits_per_weight, 3.3);
  EXPECT_EQ(a.tensors.size(), 21u);
  EXPECT_EQ(a.measured_tokens, 4 * 31);
  EXPECT_EQ(a.verified_tokens, 4 * 31);
  uint64_t bytes = 0, weights = 0;
  for (const TensorAllocation& t : a.tensors) {
    bytes += t.bytes, weights += t.weights;
    EXPECT_GT(t.damage, 0) << t.name;
  }
  EXPECT_NEAR(8.0 * static_cast<double>(bytes) / static_cast<double>(weights),
              a.chosen().bits_per_weight, 1e-12);
}

TEST_F(AllocateTest, IsNeverWorseThanTheUniformFormat) {
  for (const double target : {2.6, 3.3, 4.0}) {
    const Allocation a = run(bits(target));
    EXPECT_LE(a.chosen().verified.value, a.uniform.verified.value) << target;
    EXPECT_LE(a.allocated.searched.value, a.uniform.searched.value) << target;
    EXPECT_EQ(a.uniform_is_better, recipe_json(a.chosen().recipe) == recipe_json(a.uniform.recipe))
        << target;
  }
}

TEST_F(AllocateTest, IsComparedWithTheUniformErrorOfEqualBits) {
  const Allocation a = run(bits(3.3));
  EXPECT_NEAR(a.equal.bits_per_weight, a.allocated.bits_per_weight, 1e-9);
  EXPECT_LE(a.equal.verified.value, a.uniform.verified.value);
  AllocateOptions wide = bits(4.0);
  wide.candidates = formats({"tq2", "tq4"});
  const Allocation b = run(wide);
  EXPECT_EQ(b.uniform.recipe.type->name, "tq2");
  EXPECT_LT(b.equal.verified.value, b.uniform.verified.value / 2);
}

TEST_F(AllocateTest, TellsItsCostBeforeItBegins) {
  AllocateOptions options = bits(3.3);
  int told = 0;
  options.announce = [&](const AllocationCost& cost) {
    ++told;
    EXPECT_EQ(cost.alone, 21 * 2);
    EXPECT_GE(cost.whole, options.evaluations);
    EXPECT_GT(cost.seconds, 0);
    EXPECT_GT(cost.bytes, 0u);
    EXPECT_EQ(cost.steps, 0);
  };
  options.progress = [&](const char*, int64_t, int64_t) { EXPECT_EQ(told, 1); };
  run(options);
  EXPECT_EQ(told, 1);
}

TEST_F(AllocateTest, TellsWithWhatTheModelWritesItsText) {
  AllocateOptions options = bits(3.3);
  options.text.clear();
  options.windows = 33;  // 66 with those that verify: more than are written side by side
  int64_t steps = 0;
  options.announce = [&](const AllocationCost& cost) {
    EXPECT_GT(cost.seconds, 0);
    steps = cost.steps;
  };
  int64_t written = 0;
  options.progress = [&](const char* stage, int64_t, int64_t) {
    if (std::string_view(stage) != "writing text")
      throw Error(ErrorCode::interrupted, "test", "enough");
    ++written;
  };
  EXPECT_THROW(run(options), Error);
  EXPECT_EQ(steps, 2 * (options.ctx - 1));
  EXPECT_EQ(written, 2 * options.ctx) << "the first token of a window takes no step";
}

TEST_F(AllocateTest, ATightBudgetLeavesTheUniformFormat) {
  AllocateOptions options = bits(2.2);
  const Candidates candidates(model_.opener(pool_), recipe_of("tq2"), options.candidates, false);
  uint64_t bytes = 0;
  for (size_t t = 0; t < candidates.tensors().size(); ++t)
    bytes += candidates.bytes(t, 0);
  options.bits_per_weight =
      8 * static_cast<double>(bytes) / static_cast<double>(candidates.linear_weights());
  const Allocation a = run(options);
  EXPECT_TRUE(a.uniform_is_better);
  EXPECT_EQ(a.chosen().recipe.type->name, "tq2");
  EXPECT_TRUE(a.chosen().recipe.rules.empty());
  options.bits_per_weight -= 0.01;
  EXPECT_THROW(run(options), Error);
}

TEST_F(AllocateTest, GivesWhatCannotBeSeenTheFewestBits) {
  model_.scale("model.layers.1.mlp.down_proj.weight", 0);
  const Allocation a = run(bits(3.3));
  for (const TensorAllocation& t : a.tensors) {
    if (t.name.find("layers.1.mlp") == std::string::npos) continue;
    EXPECT_EQ(t.format->name, "tq2") << t.name;
  }
}

TEST_F(AllocateTest, TheRecipeIsWhatWasMeasured) {
  const Allocation a = run(bits(3.3));
  const auto compressor = open_compressor(model_.path(), a.chosen().recipe, pool_);
  for (const TensorAllocation& t : a.tensors)
    EXPECT_EQ(&compressor->format_of(t.name), t.format) << t.name;
  EXPECT_NEAR(predict(*compressor).bits_per_weight(), a.chosen().bits_per_weight, 1e-12);
}

TEST_F(AllocateTest, KeepsTheSizeOfTheFile) {
  AllocateOptions options = bits(0);
  options.file_bytes = written_bytes(recipe_of("tq4"));
  const Allocation a = run(options);
  EXPECT_EQ(a.tensors.size(), 22u) << "the embedding takes part";
  EXPECT_LE(written_bytes(a.chosen().recipe), options.file_bytes);
  EXPECT_LE(written_bytes(a.uniform.recipe), options.file_bytes);
  EXPECT_GT(written_bytes(a.chosen().recipe), options.file_bytes - options.file_bytes / 20);
}

TEST_F(AllocateTest, IsDeterministic) {
  AllocateOptions options = bits(3.3);
  options.text.clear();
  options.bos = 1;
  options.windows = 1;
  options.evaluations = 2;
  const Allocation a = run(options);
  EXPECT_TRUE(a.self_text);
  ThreadPool three(3);
  LoadOptions load;
  load.pool = &three;
  const Allocation b = allocate(model_.opener(three), recipe_of("tq2"), options, load);
  EXPECT_EQ(recipe_json(a.chosen().recipe), recipe_json(b.chosen().recipe));
  EXPECT_EQ(a.chosen().verified.value, b.chosen().verified.value);
}

TEST_F(AllocateTest, LeavesTensorsAloneThatRulesName) {
  Recipe base = recipe_of("tq2");
  base.rules = {parse_override("re:down_proj=tq4"), parse_ignore("re:layers.0.*q_proj")};
  const Allocation a = run(bits(4.2), base);
  EXPECT_EQ(a.tensors.size(), 17u);
  const auto compressor = open_compressor(model_.path(), a.chosen().recipe, pool_);
  EXPECT_EQ(compressor->format_of("model.layers.1.mlp.down_proj.weight").name, "tq4");
  EXPECT_EQ(compressor->format_of("model.layers.0.self_attn.q_proj.weight").name, "bf16");
  EXPECT_LE(a.chosen().bits_per_weight, 4.2);
}

TEST_F(AllocateTest, WorksWithEveryPlaceOfRotation) {
  for (const RotateAt place : {RotateAt::residual, RotateAt::both}) {
    Recipe base = recipe_of("tq2");
    base.rotate = place;
    const Allocation a = run(bits(3.3), base);
    EXPECT_LE(a.chosen().verified.value, a.uniform.verified.value) << rotate_at_name(place);
    EXPECT_GT(a.chosen().verified.value, 0) << rotate_at_name(place);
    // Alone, each tensor does less damage than all of them together.
    for (const TensorAllocation& t : a.tensors)
      EXPECT_LT(t.damage, a.chosen().searched.value) << t.name << rotate_at_name(place);
  }
}

TEST_F(AllocateTest, RefusesWrongOptions) {
  AllocateOptions both = bits(3);
  both.file_bytes = 1000;
  EXPECT_THROW(run(both), Error);
  EXPECT_THROW(run(bits(0)), Error);
  EXPECT_THROW(run(bits(0.5)), Error);
  EXPECT_THROW(run(bits(17)), Error);
  AllocateOptions mixed = bits(3);
  mixed.candidates = formats({"tq3", "q8_0"});
  EXPECT_THROW(run(mixed), Error) << "one of them would switch balancing off";
  mixed.candidates = formats({"tq3", "tq3"});
  EXPECT_THROW(run(mixed), Error);
  AllocateOptions small = bits(0);
  small.file_bytes = 2000;
  EXPECT_THROW(run(small), Error);
  AllocateOptions short_text = bits(3);
  short_text.text.resize(63);
  EXPECT_THROW(run(short_text), Error);
}

TEST_F(AllocateTest, ProgressSeesEveryStageAndMayStop) {
  AllocateOptions options = bits(3.3);
  std::vector<std::string> stages;
  options.progress = [&](const char* stage, int64_t done, int64_t total) {
    EXPECT_LE(done, total);
    EXPECT_TRUE(std::string_view(stage) != "measuring recipes" || total == options.evaluations + 4)
        << total;
    if (stages.empty() || stages.back() != stage) stages.emplace_back(stage);
  };
  run(options);
  EXPECT_EQ(stages.size(), 4u);
  options.progress = [](const char*, int64_t, int64_t) {
    throw Error(ErrorCode::interrupted, "test", "enough");
  };
  EXPECT_THROW(run(options), Error);
}

TEST_F(AllocateTest, TheModelWritesTheSameTextAgain) {
  const auto source = open_source(model_.path(), nullptr, pool_);
  LoadOptions load;
  load.pool = &pool_;
  const Model model =
      Model::load(*source, parse_config(source->config_json(), "config.json"), load);
  SelfTextOptions options;
  options.ctx = 16;
  options.windows = 3;
  options.bos = 1;
  const auto text = write_self_text(model, options);
  ASSERT_EQ(text.size(), 48u);
  EXPECT_EQ(text[16], 1);
  EXPECT_EQ(text, write_self_text(model, options));
  EXPECT_NE(std::vector<int32_t>(text.begin(), text.begin() + 16),
            std::vector<int32_t>(text.begin() + 16, text.begin() + 32));
  options.windows = 70;  // more than are written side by side
  int64_t told = 0;
  const auto longer = write_self_text(model, options, [&](int64_t done, int64_t total) {
    EXPECT_LT(done, total);
    EXPECT_GE(done, told);
    told = done;
  });
  EXPECT_EQ(longer.size(), 70u * 16);
  EXPECT_EQ(text, std::vector<int32_t>(longer.begin(), longer.begin() + 48));
  options.seed = 2;
  EXPECT_NE(longer, write_self_text(model, options));
}

}  // namespace
}  // namespace walsh
