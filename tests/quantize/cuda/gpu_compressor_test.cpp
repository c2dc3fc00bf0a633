// Tests files written with the help of a GPU.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/cuda/device.h"
#include "quantize/pipeline/pipeline.h"
#include "quantize/tiny_checkpoint.h"
#include "threads.h"
#include "walsh/error.h"
#include "weights/walsh_file.h"

namespace walsh {
namespace {

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class GpuCompressor : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::devices().empty()) GTEST_SKIP() << "no CUDA device: " << cuda::unavailable_reason();
  }
  std::unique_ptr<Compressor> compressor(const std::string& type) {
    Recipe recipe;
    recipe.type = recipe.head_type = recipe.embed_type = &get_format(type);
    return std::make_unique<Compressor>(Checkpoint::open(tiny_.path()), tiny_.plan(), recipe,
                                        pool_);
  }

  TinyCheckpoint tiny_{testing::UnitTest::GetInstance()->current_test_info()->name()};
  ThreadPool pool_{test::kThreads};
};

TEST_F(GpuCompressor, FilesHaveTheBytesOfTheCpu) {
  for (const char* type : {"tq3", "itq3_s", "tq4+2", "q4_0", "f16", "tc2:hq", "tc3:h"}) {
    quantize_to_file(*compressor(type), tiny_.file("cpu.gguf"), {});
    const auto gpu = compressor(type);
    gpu->use_gpu(0);
    quantize_to_file(*gpu, tiny_.file("gpu.gguf"), {});
    EXPECT_EQ(slurp(tiny_.file("cpu.gguf")), slurp(tiny_.file("gpu.gguf"))) << type;
  }
}

TEST_F(GpuCompressor, AMatrixMayStayOnTheGpuButTheEmbeddingDoesNot) {
  const auto source = compressor("tq3");
  source->encode_on({true, 0});
  int on_gpu = 0;
  for (const TensorPlan& plan : source->tensors()) {
    const Tensor tensor = source->load(plan.name);
    on_gpu += tensor.on_gpu;
    const bool embedding = plan.name.find("embed") != std::string::npos;
    EXPECT_TRUE(!embedding || !tensor.on_gpu);
    EXPECT_TRUE(!plan.linear || tensor.on_gpu) << plan.name;
  }
  EXPECT_GT(on_gpu, 0);
}

// Weights beyond fp16 scales are refused as on the CPU, even if the codes stay on the GPU.
TEST_F(GpuCompressor, WeightsBeyondTheRangeOfTheScalesAreRefused) {
  const std::vector<float> before = tiny_.values("down");
  for (const double factor : {1e10, 1e-14}) {
    for (size_t i = 0; i < before.size(); ++i)
      tiny_.values("down")[i] = static_cast<float>(before[i] * factor);
    tiny_.save();
    for (const char* type : {"tq3", "itq3_s8", "tq4+2", "q8_0"}) {
      for (const bool stays : {false, true}) {
        const auto source = compressor(type);
        stays ? source->encode_on({true, 0}) : source->use_gpu(0);
        try {
          source->load("down");
          ADD_FAILURE() << type << " " << factor;
        } catch (const Error& e) {
          EXPECT_EQ(e.code(), ErrorCode::bad_input) << e.what();
          EXPECT_NE(std::string(e.what()).find(factor > 1 ? "too large" : "too small"),
                    std::string::npos)
              << e.what();
        }
        EXPECT_NO_THROW(source->load("up"));
      }
    }
  }
}

}  // namespace
}  // namespace walsh
