// Tests experts in the layouts of checkpoints, and routers in a compressed model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "quantize/pipeline/compressor.h"
#include "threads.h"
#include "tiny_checkpoint.h"
#include "walsh/error.h"
#include "weights/checkpoint_source.h"

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
  // This takes every second of the four "columns" of the last dimension but one, turned.
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

// Two experts have four outputs, which alternate between gate and up, and 32 inputs in MXFP4.
class CodedExperts : public testing::Test {
 protected:
  CodedExperts() {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "config.json") << R"({"model_type": "tiny"})";
  }
  ~CodedExperts() override { std::filesystem::remove_all(folder_); }

  // Row r of expert e has the scale 2^(4 e + r) and the values 0.5 and 1 in turn.
  void write(const std::vector<int>& blocks, const std::vector<int>& scales) const {
    const std::string data = std::string(2 * 4 * 16, '\x21') + "\x7f\x80\x81\x82\x83\x84\x85\x86";
    const nlohmann::json header = {
        {"all_blocks", {{"dtype", "U8"}, {"shape", blocks}, {"data_offsets", {0, 128}}}},
        {"all_scales", {{"dtype", "U8"}, {"shape", scales}, {"data_offsets", {128, 136}}}}};
    const std::string text = header.dump();
    const uint64_t length = text.size();
    std::ofstream out(folder_ / "model.safetensors", std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), 8);
    out << text << data;
  }
  CheckpointSource source(int64_t inputs = 32) const {
    StoredMethod stored;
    stored.kind = StoredMethod::Kind::mxfp4;
    const TensorPart up = {"up", "all", 0, 2, 0, 0, {2, inputs, 4}, inputs, 4 * inputs + 1, 2, 4};
    return CheckpointSource(Checkpoint::open(folder_), {up}, stored);
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("walsh_coded_experts_" + std::to_string(getpid()));
};

TEST_F(CodedExperts, AreEverySecondRowOfTheirExpert) {
  write({2, 4, 1, 16}, {2, 4, 1});
  CheckpointSource from = source();
  EXPECT_THAT(from.names(), testing::ElementsAre("up"));
  const Tensor tensor = from.load("up");
  EXPECT_EQ(tensor.rows, 2);
  ASSERT_EQ(tensor.cols, 32);
  const std::vector<float> values = values_of(tensor);
  for (size_t r = 0; r < 2; ++r) {
    const float scale = std::ldexp(1.0f, static_cast<int>(4 + 2 * r + 1));
    EXPECT_EQ(values[r * 32], 0.5f * scale);
    EXPECT_EQ(values[r * 32 + 31], scale);
  }
}

TEST_F(CodedExperts, HaveTheChecksumOfTheirValuesAndScales) {
  write({2, 4, 1, 16}, {2, 4, 1});
  const std::string codes(2 * 4 * 16, '\x21'), scales = "\x7f\x80\x81\x82\x83\x84\x85\x86";
  const auto sum = [](const std::string& bytes) {
    return checksum(std::as_bytes(std::span(bytes))).hex();
  };
  EXPECT_EQ(source().stored_checksum("up").hex(), sum(sum(codes) + sum(scales)));
}

TEST_F(CodedExperts, OfOtherShapesAreRefused) {
  write({2, 2, 2, 16}, {2, 2, 2});
  EXPECT_THROW(source().load("up"), Error);
  write({2, 4, 1, 16}, {2, 2, 2});
  EXPECT_THROW(source().load("up"), Error);
  write({2, 4, 1, 16}, {2, 4, 1});
  EXPECT_THROW(source(40).load("up"), Error) << "no multiple of a block";
}

// Makes a checkpoint in which one router reads what gate and up read.
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
  ThreadPool pool_{test::kThreads};
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
