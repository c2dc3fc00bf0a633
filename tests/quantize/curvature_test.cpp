// Tests that what was measured of outputs is read from its folder, refused by name, and used by the
// pipeline.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "quantize/correlated.h"
#include "quantize/curvature_folder.h"
#include "quantize/feedback/curvature_files.h"
#include "quantize/pipeline/pipeline.h"
#include "quantize/tiny_checkpoint.h"
#include "threads.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using testing_support::CurvatureFolder;
using testing_support::upper_triangle;

class Statistics : public InputStatistics {
 public:
  explicit Statistics(ThreadPool& pool) {
    for (const int64_t width : {TinyCheckpoint::kHidden, TinyCheckpoint::kHidden,
                                TinyCheckpoint::kFfn, TinyCheckpoint::kHidden}) {
      moments_.push_back(testing_support::moments_of(
          testing_support::correlated_activations(400, width, 30), width, pool));
    }
  }
  const InputMoments& moments(int site) override { return moments_.at(static_cast<size_t>(site)); }
  const InputMoments& expert_moments(int site, int) override { return moments(site); }

 private:
  std::vector<InputMoments> moments_;
};

std::string file_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Curvature : public testing::Test {
 protected:
  Curvature() {
    for (const auto& [name, rows] : kRows)
      folder_.add(name, rows, upper_triangle(rows), source_.stored_checksum(name));
    folder_.save();
  }

  // Returns the error of a call, with "the folder" in the place where its path stands.
  template <class Call>
  std::string refusal(const Call& call) const {
    try {
      call();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::bad_input) << e.what();
      return e.what();
    }
    return "";
  }
  std::string opening() const {
    return refusal([&] { CurvatureFiles files(folder_.path()); });
  }
  std::string reading(const std::string& name, int64_t rows) const {
    return refusal([&] { CurvatureFiles(folder_.path()).moments(source_, name, rows); });
  }
  std::string quantized(const std::string& type, bool two_sided, const std::string& out,
                        Recipe settings = {}, ModelPlan plan = {}) {
    settings.type = &get_format(type);
    settings.encode.effort = Effort::fast;
    settings.calibration = CalibrationText{"0123", 400, 400};
    if (plan.sites.empty()) plan = tiny_.plan();
    Compressor source(Checkpoint::open(tiny_.path()), plan, settings, pool_);
    source.calibrate(std::make_shared<Statistics>(pool_));
    if (two_sided) source.use_curvature(std::make_shared<const CurvatureFiles>(folder_.path()));
    quantize_to_file(source, tiny_.file(out), {});
    return file_bytes(tiny_.file(out));
  }

  static constexpr std::pair<const char*, int64_t> kRows[] = {
      {"q", 48}, {"k", 48}, {"v", 48}, {"gate", 160}, {"up", 160}, {"down", 96}};
  TinyCheckpoint tiny_{testing::UnitTest::GetInstance()->current_test_info()->name()};
  CheckpointSource source_{Checkpoint::open(tiny_.path()), {}};
  CurvatureFolder folder_{tiny_.file("curvature")};
  ThreadPool pool_{test::kThreads};
};

TEST_F(Curvature, IsReadAsItWasMeasured) {
  const CurvatureFiles files(folder_.path());
  EXPECT_NO_THROW(files.check_text("0123"));
  const auto moments = files.moments(source_, "q", 48);
  ASSERT_TRUE(moments);
  EXPECT_EQ(moments->tokens, 1000);
  EXPECT_FLOAT_EQ(moments->sums[0], 1000);
  EXPECT_FLOAT_EQ(moments->sums[47], 500);
  EXPECT_FLOAT_EQ(moments->sums[47 * 48 + 47], 1470);
}

TEST_F(Curvature, OfAPartIsThatOfItsRows) {
  std::vector<float> upper;
  for (int i = 0; i < 48; ++i) {
    for (int j = i; j < 48; ++j)
      upper.push_back(static_cast<float>(100 * i + j));
  }
  folder_.add("q", 48, upper, source_.stored_checksum("q"), 1);
  folder_.save();
  const CurvatureFiles files(folder_.path());
  TensorPart rows{.name = "rows", .source = "q", .first_row = 16, .rows = 32};
  TensorPart turned{.name = "turned", .source = "q", .rows = 16, .turned = 8, .head_dim = 16};
  TensorPart groups{.name = "groups", .source = "q", .rows = 6, .shape = {48, 96}, .cols = 96};
  groups.groups = {{.first = 4, .rows = 2, .step = 10, .count = 2},
                   {.first = 40, .rows = 2, .step = 2, .count = 1}};
  const CheckpointSource parts(Checkpoint::open(tiny_.path()), {turned, rows});
  const auto at = [](const std::optional<InputMoments>& m, int64_t i, int64_t j) {
    return m->sums[static_cast<size_t>(i * m->width + j)];
  };
  const auto of_rows = files.moments(parts, "rows", 32);
  EXPECT_EQ(at(of_rows, 0, 1), 1617);
  EXPECT_EQ(at(of_rows, 31, 31), 4747);
  const auto of_turned = files.moments(parts, "turned", 16);  // 0 2 4 6 1 3 5 7, then 8 ...
  EXPECT_EQ(at(of_turned, 1, 2), 204);
  EXPECT_EQ(at(of_turned, 1, 4), 102) << "the smaller row of the two comes first";
  EXPECT_EQ(at(of_turned, 7, 8), 708);
  const CheckpointSource grouped(Checkpoint::open(tiny_.path()), {groups});
  const auto of_groups = files.moments(grouped, "groups", 6);  // 4 5 14 15 40 41
  EXPECT_EQ(at(of_groups, 1, 2), 514);
  EXPECT_EQ(at(of_groups, 3, 4), 1540);
}

TEST_F(Curvature, OfAnExpertThatNoTokenReachedIsNothing) {
  folder_.head()["matrices"]["extra"] = {{"tokens", 0}, {"weights", "00"}};
  tiny_.add("extra", {16, 32}, 1);
  tiny_.save();
  const CheckpointSource source(Checkpoint::open(tiny_.path()), {});
  folder_.head()["matrices"]["extra"]["weights"] = source.stored_checksum("extra").hex();
  folder_.save();
  EXPECT_FALSE(CurvatureFiles(folder_.path()).moments(source, "extra", 16));
}

TEST_F(Curvature, IsRefusedByNameIfItDoesNotFit) {
  const CurvatureFiles files(folder_.path());
  EXPECT_NE(refusal([&] { files.check_text("4567"); }).find("another text"), std::string::npos);
  EXPECT_NE(reading("q", 47).find("tensor q: has 48 rows"), std::string::npos);
  EXPECT_NE(reading("head", 40).find("lacks the matrix head"), std::string::npos);
  folder_.values("k")[7] = std::nanf("");
  folder_.save();
  EXPECT_NE(reading("k", 48).find("tensor k: has NaN or infinity"), std::string::npos);
  folder_.values("k")[7] = 0.25f;
  folder_.save(false);
  EXPECT_NE(reading("k", 48).find("tensor k: its checksum does not fit"), std::string::npos);
  folder_.head()["matrices"]["k"]["weights"] = "0123";
  folder_.save();
  EXPECT_NE(reading("k", 48).find("tensor k: was measured with other weights"), std::string::npos);
}

TEST_F(Curvature, IsRefusedIfTheFolderIsNotWhatWasWritten) {
  const std::string whole = file_bytes(folder_.file());
  const auto with = [&](const std::string& content) {
    std::ofstream(folder_.file(), std::ios::binary) << content;
    return opening();
  };
  EXPECT_EQ(with(whole), "");
  for (const size_t size : {size_t{4}, size_t{100}, whole.size() - 1})
    EXPECT_NE(with(whole.substr(0, size)).find("layer-00000.safetensors"), std::string::npos);
  folder_.head()["version"] = 2;
  folder_.save();
  EXPECT_NE(opening().find("version 2"), std::string::npos);
  folder_.head()["version"] = 1;
  folder_.head()["matrices"]["q"]["rows"] = 47;
  folder_.save();
  EXPECT_NE(opening().find("tensor q: expected F32 and the 1128 values"), std::string::npos);
  folder_.head()["matrices"]["q"]["rows"] = 48;
  folder_.save();
  std::filesystem::copy_file(folder_.file(), folder_.path() + "/layer-00001.safetensors");
  EXPECT_NE(opening().find("is in another file, too"), std::string::npos);
  std::filesystem::create_directory(folder_.path() + "/work");
  EXPECT_NE(opening().find("was interrupted"), std::string::npos);
  std::filesystem::remove_all(folder_.path());
  std::filesystem::create_directory(folder_.path());
  EXPECT_NE(opening().find("no layer-*.safetensors"), std::string::npos);
  std::filesystem::remove_all(folder_.path());
  try {
    CurvatureFiles files(folder_.path());
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io);
  }
}

TEST_F(Curvature, ChangesScalarAndTrellisCodesAndNothingElse) {
  for (const char* type : {"tq3", "tc3:h:L14"}) {
    const std::string one = quantized(type, false, "one.gguf");
    const std::string two = quantized(type, true, "two.gguf");
    EXPECT_EQ(one.size(), two.size()) << type;
    EXPECT_FALSE(one == two) << type;
  }
  EXPECT_TRUE(quantized("f16", false, "one.gguf") == quantized("f16", true, "two.gguf"));
}

TEST_F(Curvature, IsRefusedByThePipelineWithTheNameOfTheMatrix) {
  folder_.add("v", 48, upper_triangle(48, -2.0f), source_.stored_checksum("v"));
  folder_.save();
  EXPECT_NE(refusal([&] {
              quantized("tq3", true, "out.gguf");
            }).find("curvature: tensor v: the moments of its gradients are not positive"),
            std::string::npos);
  folder_.remove("v");
  folder_.save();
  EXPECT_NE(refusal([&] { quantized("tq3", true, "out.gguf"); }).find("lacks the matrix v"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(tiny_.file("out.gguf")));
}

// With moments that are the identity the basis of the rows makes no difference, with others it
// does.
TEST_F(Curvature, StandsInTheBasisOfRowsThatAreScaledFoldedOrRotated) {
  ModelPlan plan = tiny_.plan();
  plan.sites[2].feeder = {"up", "", TinyCheckpoint::kFfn, 1};
  Recipe both;
  both.rotate = RotateAt::both;
  const std::string scaled = quantized("tq3", true, "a.gguf", {}, plan);
  const std::string rotated = quantized("tq3", true, "b.gguf", both, plan);
  EXPECT_FALSE(scaled == quantized("tq3", false, "c.gguf", {}, plan));
  EXPECT_FALSE(rotated == quantized("tq3", false, "c.gguf", both, plan));
}

TEST_F(Curvature, IsPartOfWhatAnInterruptedRunMustHaveHad) {
  const auto compressor = [&](bool two_sided) {
    Recipe settings;
    settings.type = &get_format("tc3:h:L14");
    settings.encode.effort = Effort::fast;
    settings.calibration = CalibrationText{"0123", 400, 400};
    auto source =
        std::make_unique<Compressor>(Checkpoint::open(tiny_.path()), tiny_.plan(), settings, pool_);
    source->calibrate(std::make_shared<Statistics>(pool_));
    if (two_sided) source->use_curvature(std::make_shared<const CurvatureFiles>(folder_.path()));
    return source;
  };
  const auto with = compressor(true), again = compressor(true), without = compressor(false);
  EXPECT_EQ(*with->encoding_key("q"), *again->encoding_key("q"));
  EXPECT_NE(*with->encoding_key("q"), *without->encoding_key("q"));
  folder_.add("q", 48, upper_triangle(48, 0.25f), source_.stored_checksum("q"));
  folder_.save();
  EXPECT_NE(*with->encoding_key("q"), *compressor(true)->encoding_key("q"));
}

}  // namespace
}  // namespace walsh
