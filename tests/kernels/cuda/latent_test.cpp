// The kernels of latent attention on a GPU.
#include <gtest/gtest.h>

#include "kernels/cuda/latent_data.h"

namespace walsh::cuda {
namespace {

class GpuLatent : public testing::Test {
 protected:
  void SetUp() override {
    if (devices().empty()) GTEST_SKIP() << "no CUDA device: " << unavailable_reason();
  }
};

TEST_F(GpuLatent, AttendsAsTheCpu) {
  for (const int heads : {1, 4, 9, 16, 128}) {
    expect_latents_attended({{512, 64, heads}, 1500, 1, 1});
    expect_latents_attended({{512, 64, heads}, 130, 100, 2});
    expect_latents_attended({{32, 8, heads}, 700, 5, 3});
    expect_latents_attended({{24, 16, heads, 50}, 200, 40, 4});
  }
}

TEST_F(GpuLatent, KeepsLatentsAndSharedKeysAtTheirPlaces) {
  expect_latents_kept({32, 8, 3}, 60);
  expect_latents_kept({512, 64, 128}, 17);
}

TEST_F(GpuLatent, MultipliesEveryHeadWithItsPart) {
  for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
    for (const int64_t m : {1, 7, 8, 9, 100}) {
      expect_heads_multiplied(type, 5, 20, 32, 0, m);
      expect_heads_multiplied(type, 3, 512, 128, 64, m);
      expect_heads_multiplied(type, 3, 128, 512, 0, m);
    }
  }
}

}  // namespace
}  // namespace walsh::cuda
