// Tests the kernels of latent attention on a GPU.
#include <gtest/gtest.h>

#include "kernels/cuda/latent_data.h"
#include "kernels/cuda/latent_prompt_data.h"

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

TEST_F(GpuLatent, AttendsPromptsAsTheFormulaSays) {
  for (const int64_t m : {1, 17, 64, 127, 129, 300}) {
    expect_prompt_attended({{512, 64, 3, 192, 128}, 300, m, 1});
    expect_prompt_attended({{512, 64, 2, 192, 128, 50}, 333, m, 2});
    expect_prompt_attended({{32, 8, 5, 32, 24, 0, 100}, 301, m, 3});
  }
  for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
    expect_prompt_attended({{512, 64, 2, 192, 128, 0, 0, type}, 700, 200, 4});
    expect_prompt_attended({{40, 16, 4, 40, 48, 30, 0, type}, 140, 130, 5});
    expect_prompt_attended({{128, 32, 3, 320, 264, 0, 0, type}, 130, 90, 6});
    expect_prompt_attended({{128, 32, 3, 160, 160, 0, 0, type}, 130, 90, 7});
  }
}

TEST_F(GpuLatent, AttendsHeadByHeadWhereMemoryIsShort) {
  expect_prompt_attended({{512, 64, 16, 192, 128, 0, 0, DType::f16, 0}, 260, 150, 8});
  expect_prompt_attended({{32, 8, 9, 32, 24, 0, 0, DType::bf16, 0}, 130, 40, 9});
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
