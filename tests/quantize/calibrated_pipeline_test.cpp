// Tests calibrated compression of a tiny checkpoint with artificial activations.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>

#include "base/cuda/device.h"
#include "quantize/correlated.h"
#include "quantize/file/verify.h"
#include "quantize/pipeline/open.h"
#include "quantize/pipeline/pipeline.h"
#include "quantize/tiny_checkpoint.h"
#include "threads.h"
#include "walsh/error.h"
#include "weights/walsh_file.h"

namespace walsh {
namespace {

using testing_support::correlated_activations;

// Makes correlated activations at every site of TinyCheckpoint's plan and at its head.
class MadeUpStatistics : public InputStatistics {
 public:
  MadeUpStatistics(uint64_t seed, ThreadPool& pool) {
    for (const int64_t width : {TinyCheckpoint::kHidden, TinyCheckpoint::kHidden,
                                TinyCheckpoint::kFfn, TinyCheckpoint::kHidden}) {
      moments_.push_back(
          testing_support::moments_of(correlated_activations(400, width, seed++), width, pool));
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

class CalibratedPipeline : public testing::Test {
 protected:
  ModelPlan plan() const {
    ModelPlan plan = tiny_.plan();
    plan.sites[2].feeder = {"up", "", TinyCheckpoint::kFfn, 1};
    return plan;
  }
  static Recipe recipe(const std::string& type) {
    Recipe recipe;
    recipe.type = &get_format(type);
    recipe.head_type = recipe.type;
    recipe.encode.effort = Effort::fast;
    recipe.calibration = CalibrationText{"0123", 400, 400};
    return recipe;
  }
  std::unique_ptr<Compressor> compressor(const std::string& type, uint64_t seed = 30) {
    auto source =
        std::make_unique<Compressor>(Checkpoint::open(tiny_.path()), plan(), recipe(type), pool_);
    source->calibrate(std::make_shared<MadeUpStatistics>(seed, pool_));
    return source;
  }
  // Describes the residual stream of plan(), which has no attention between v and o.
  ModelPlan residual_plan() const {
    ModelPlan result = plan();
    ResidualPlan& r = result.residual;
    r.refusal = "";
    r.hidden = TinyCheckpoint::kHidden;
    r.head = "head";
    r.norms = {"norm1", "norm2", "final"};
    const auto entry = [&](const char* name, const char* norm) {
      r.tensors.push_back({name, name, norm, Basis::own, Basis::residual});
    };
    entry("embed", "");
    for (const char* name : {"q", "k", "v"})
      entry(name, "norm1");
    for (const char* name : {"gate", "up"})
      entry(name, "norm2");
    entry("head", "final");
    r.tensors.push_back({"down", "down", "", Basis::residual, Basis::own});
    return result;
  }
  // Compares every path through the MLP (norm2 - up - down) in `got` with `want`.
  double path_error(WeightSource& got, WeightSource& want) {
    const auto paths = [&](WeightSource& source) {
      const std::vector<float> up = decode(source, "up"), down = decode(source, "down");
      const std::vector<float> gain = decode(source, "norm2");
      std::vector<double> result;
      for (size_t f = 0; f < TinyCheckpoint::kFfn; ++f) {
        for (size_t c = 0; c < TinyCheckpoint::kHidden; ++c) {
          result.push_back(double{up[f * TinyCheckpoint::kHidden + c]} * double{gain[c]} *
                           double{down[c * TinyCheckpoint::kFfn + f]});
        }
      }
      return result;
    };
    const std::vector<double> a = paths(got), b = paths(want);
    double error = 0, norm = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      error += (a[i] - b[i]) * (a[i] - b[i]);
      norm += b[i] * b[i];
    }
    return error / norm;
  }
  std::vector<float> decode(WeightSource& source, const std::string& name) {
    const Tensor t = source.load(name);
    std::vector<float> out(static_cast<size_t>(t.rows * t.cols));
    decode_rows(t, 0, t.rows, out.data());
    return out;
  }

  TinyCheckpoint tiny_{testing::UnitTest::GetInstance()->current_test_info()->name()};
  ThreadPool pool_{test::kThreads};
};

TEST_F(CalibratedPipeline, ScalesGoIntoTheRowsOfTheFeederAndIntoTheFile) {
  auto source = compressor("tq4+4");
  quantize_to_file(*source, tiny_.file("out.gguf"), {});
  EXPECT_EQ(source->separately_scaled(), std::vector<std::string>{"down"});
  auto file = WalshFile::open(tiny_.file("out.gguf"));
  const auto scales = file->column_scales("down");
  ASSERT_EQ(scales.size(), size_t{TinyCheckpoint::kFfn});
  EXPECT_TRUE(file->column_scales("up").empty());
  double spread = 0;
  for (const float s : scales)
    spread += std::fabs(std::log(s));
  EXPECT_GT(spread / TinyCheckpoint::kFfn, 0.1);
  CheckpointSource checkpoint(Checkpoint::open(tiny_.path()), {});
  EXPECT_LT(path_error(*file, checkpoint), 1e-3);
  for (const char* name : {"q", "up", "down", "head"}) {
    EXPECT_NEAR(measure_nmse(*file, checkpoint, plan(), name, pool_), source->nmse(name),
                1e-3 * source->nmse(name))
        << name;
  }
}

TEST_F(CalibratedPipeline, ADenseFeederIsLeftAlone) {
  Recipe settings = recipe("tq3");
  settings.rules = {parse_ignore("up")};
  Compressor source(Checkpoint::open(tiny_.path()), plan(), settings, pool_);
  source.calibrate(std::make_shared<MadeUpStatistics>(30, pool_));
  EXPECT_TRUE(source.separately_scaled().empty());
  quantize_to_file(source, tiny_.file("out.gguf"), {});
  EXPECT_EQ(decode(*WalshFile::open(tiny_.file("out.gguf")), "up"), tiny_.values("up"));
}

TEST_F(CalibratedPipeline, TheHeadIsFedBackAndTheEmbeddingIsNot) {
  Recipe settings = recipe("tq3");
  settings.embed_type = &get_format("tq3");
  Compressor fed_back(Checkpoint::open(tiny_.path()), plan(), settings, pool_);
  fed_back.calibrate(std::make_shared<MadeUpStatistics>(30, pool_));
  settings.calibration.reset();
  Compressor plain(Checkpoint::open(tiny_.path()), plan(), settings, pool_);
  EXPECT_EQ(decode(fed_back, "embed"), decode(plain, "embed"));
  decode(fed_back, "head");
  decode(plain, "head");
  EXPECT_GT(fed_back.nmse("head"), 1.05 * plain.nmse("head"));
}

TEST_F(CalibratedPipeline, NothingIsCompressedBeforeItIsMeasured) {
  Compressor source(Checkpoint::open(tiny_.path()), plan(), recipe("tq3"), pool_);
  EXPECT_NO_THROW(predict(source));
  EXPECT_THROW(source.load("q"), Error);
}

// Several matrices are encoded at once, with the errors of each fed back on the GPU.
TEST_F(CalibratedPipeline, AGpuGivesTheSameFile) {
  if (cuda::devices().empty()) GTEST_SKIP() << "no CUDA device: " << cuda::unavailable_reason();
  for (const char* type : {"tc3:h", "tc4:h", "tc2:h:L14", "tq3"}) {
    quantize_to_file(*compressor(type), tiny_.file("cpu.gguf"), {});
    const auto gpu = compressor(type);
    gpu->use_gpu(cuda::devices().front().index);
    quantize_to_file(*gpu, tiny_.file("gpu.gguf"), {});
    EXPECT_TRUE(file_bytes(tiny_.file("cpu.gguf")) == file_bytes(tiny_.file("gpu.gguf"))) << type;
  }
}

TEST_F(CalibratedPipeline, AnInterruptedRunContinuesWithEqualMeasurementsOnly) {
  const std::string path = tiny_.file("out.gguf"), whole = tiny_.file("whole.gguf");
  quantize_to_file(*compressor("tc3:h:L14"), whole, {});
  const auto interrupt = [&](uint64_t seed) {
    EXPECT_THROW(quantize_to_file(*compressor("tc3:h:L14", seed), path,
                                  [&](const QuantizeProgress& p) {
                                    if (p.tensor->name == "gate")
                                      throw Error(ErrorCode::interrupted, "", "stopped");
                                  }),
                 Error);
  };
  const auto resumed = [&](uint64_t seed) {
    int count = 0;
    quantize_to_file(*compressor("tc3:h:L14", seed), path,
                     [&](const QuantizeProgress& p) { count += p.resumed; });
    return count;
  };
  interrupt(30);
  EXPECT_EQ(resumed(30), 4);  // q, k, v, gate
  EXPECT_TRUE(file_bytes(path) == file_bytes(whole));
  interrupt(31);
  EXPECT_EQ(resumed(30), 0);
  EXPECT_TRUE(file_bytes(path) == file_bytes(whole));
}

// In a folded model only the input of down is still in the checkpoint's basis.
TEST_F(CalibratedPipeline, AFoldedModelIsFedBackAndBalancedBetweenUpAndDown) {
  const ModelPlan plan = residual_plan();
  Recipe settings = recipe("tq4+4");
  settings.rotate = RotateAt::residual;
  Compressor source(Checkpoint::open(tiny_.path()), plan, settings, pool_);
  source.calibrate(std::make_shared<MadeUpStatistics>(30, pool_));
  EXPECT_EQ(source.separately_scaled(), std::vector<std::string>{"down"});
  quantize_to_file(source, tiny_.file("out.gguf"), {});
  auto file = WalshFile::open(tiny_.file("out.gguf"));
  EXPECT_EQ(file->column_scales("down").size(), size_t{TinyCheckpoint::kFfn});
  for (const char* norm : {"norm1", "norm2", "final"})
    EXPECT_EQ(decode(*file, norm), std::vector<float>(TinyCheckpoint::kHidden, 1.0f));

  Recipe exact = settings;
  exact.type = exact.head_type = &get_format("f32");
  exact.calibration.reset();
  Compressor folded(Checkpoint::open(tiny_.path()), plan, exact, pool_);
  EXPECT_LT(path_error(*file, folded), 1e-3);
  CheckpointSource checkpoint(Checkpoint::open(tiny_.path()), {});
  for (const char* name : {"q", "up", "down", "head"}) {
    EXPECT_NEAR(measure_nmse(*file, checkpoint, plan, name, pool_), source.nmse(name),
                1e-3 * source.nmse(name))
        << name;
  }

  settings.calibration.reset();
  Compressor plain(Checkpoint::open(tiny_.path()), plan, settings, pool_);
  for (const char* name : {"q", "up", "head"}) {
    plain.load(name);
    EXPECT_GT(source.nmse(name), 1.05 * plain.nmse(name)) << name << ": only its output errs less";
  }
}

}  // namespace
}  // namespace walsh
