// Files written with the help of a GPU.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/cuda/device.h"
#include "quantize/pipeline.h"
#include "quantize/tiny_checkpoint.h"
#include "quantize/walsh_file.h"

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
  ThreadPool pool_{2};
};

TEST_F(GpuCompressor, FilesHaveTheBytesOfTheCpu) {
  for (const char* type : {"tq3", "itq3_s", "tq4+2", "q4_0", "f16", "tc2"}) {
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

}  // namespace
}  // namespace walsh
