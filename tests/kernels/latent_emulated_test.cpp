// Tests the kernels of latent attention, run on the host (emulated/device.h).
#include <gtest/gtest.h>

#include <vector>
//
#include "kernels/emulated/device.h"
//
#include "kernels/cuda/latent_data.h"
#include "kernels/cuda/latent_prompt_data.h"

namespace walsh::cuda {
namespace {

TEST(LatentKernels, AttendAsTheCpu) {
  expect_latents_attended({{32, 8, 4}, 90, 3, 1});
  expect_latents_attended({{24, 16, 9}, 17, 17, 2});
  expect_latents_attended({{512, 64, 10}, 150, 2, 3});
  expect_latents_attended({{128, 32, 4, 20}, 100, 5, 4});
}

TEST(LatentKernels, AttendPromptsAsTheFormulaSays) {
  expect_prompt_attended({{32, 8, 2, 32, 24}, 200, 70, 1});
  expect_prompt_attended({{40, 16, 1, 40, 40, 30, 0, DType::bf16}, 140, 130, 2});
  expect_prompt_attended({{24, 8, 1, 24, 8, 0, 100, DType::f32}, 130, 33, 3});
  expect_prompt_attended({{512, 64, 1, 192, 128}, 70, 70, 4});
  expect_prompt_attended({{264, 8, 1, 152, 136}, 130, 35, 5});
}

TEST(LatentKernels, AttendHeadByHeadWhereMemoryIsShort) {
  expect_prompt_attended({{16, 8, 9, 24, 16, 0, 0, DType::f16, 0}, 70, 40, 5});
}

TEST(LatentKernels, KeepLatentsAndSharedKeysAtTheirPlaces) {
  expect_latents_kept({32, 8, 3}, 9);
  expect_latents_kept({512, 64, 16}, 2);
}

TEST(LatentKernels, MultiplyEveryHeadWithItsPart) {
  for (const DType type : {DType::f16, DType::bf16, DType::f32})
    expect_heads_multiplied(type, 3, 20, 32, 0, 5);
  expect_heads_multiplied(DType::f16, 2, 64, 16, 8, 9);
  expect_heads_multiplied(DType::f16, 1, 512, 128, 64, 1);
}

}  // namespace
}  // namespace walsh::cuda
