// Tests attention over fp16 pages, run on the host (emulated/device.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>
//
#include "kernels/emulated/device.h"
//
#include "kernels/cuda/attention_data.h"

namespace walsh::cuda {
namespace {

using Problem = AttentionProblem;

TEST(AttentionKernel, DecodesAsTheCpuForEveryHeadSize) {
  for (const int dim : {8, 64, 72, 96, 128, 256, 512})
    expect_decoded(Problem({dim, 4, 2, 0}, {1, 300}, static_cast<uint64_t>(dim)));
}

TEST(AttentionKernel, DecodesAsTheCpuForEveryGroup) {
  for (const auto& [heads, kv_heads] :
       std::vector<std::pair<int, int>>{{1, 1}, {8, 1}, {9, 1}, {14, 2}})
    expect_decoded(Problem({64, heads, kv_heads, 0}, {63, 150}, 7));
}

TEST(AttentionKernel, DecodesAsTheCpuWithWindowsAndLargeLogits) {
  for (const int64_t window : {1, 63, 100})
    expect_decoded(Problem({64, 4, 2, window}, {1, 64, 300}, 13));
  for (const int64_t window : {0, 30})
    expect_decoded(Problem({64, 4, 2, window, 100}, {1, 64, 300}, 13));
  expect_decoded(Problem({64, 4, 2, 0}, {400, 30}, 14, 8), 8);
  expect_decoded(Problem({128, 4, 2, 0}, {400, 30}, 15, 30), 30);
}

TEST(AttentionKernel, CapsLogitsAndGivesSinksTheirShareAsTheCpu) {
  for (const int dim : {40, 128, 512}) {
    Problem p({dim, 9, 1, 0}, {1, 17, 300}, static_cast<uint64_t>(dim), 8);
    for (int h = 0; h < p.shape.heads; ++h)
      p.sinks.push_back(0.5f * static_cast<float>(h));
    expect_decoded(p, 8);
    p.options.logit_cap = 5;
    expect_decoded(p, 8);
  }
}

// Prompts round queries and weights to fp16.
void expect_prompt(const Problem& p) {
  expect_attention(
      p, [](const AttentionCall& call, const AttentionScratch&) { attend_prefill(call, nullptr); },
      2e-3);
}

TEST(AttentionKernel, ReadsPromptsAsTheCpuForEveryHeadSize) {
  for (const int dim : {40, 64, 96, 128, 256, 512})
    expect_prompt(Problem({dim, 2, 1, 0}, 90, 70, static_cast<uint64_t>(dim)));
}

TEST(AttentionKernel, ReadsPromptsAsTheCpuWithEveryOption) {
  for (const auto& [window, chunk] :
       std::vector<std::pair<int64_t, int64_t>>{{30, 0}, {0, 50}, {30, 50}}) {
    Problem p({64, 2, 1, window, chunk}, 140, 70, 23);
    expect_prompt(p);
    p.sinks = {0.5f, 3};
    p.options.logit_cap = 5;
    expect_prompt(p);
  }
}

// Queries far from 1, in either direction: fp16 has the second half of a small one only if it is
// kept larger.
TEST(AttentionKernel, IsAsExactForSmallAndLargeQueries) {
  for (const double size : {1e-4, 1e-2, 100.0}) {
    Problem p({128, 4, 2, 0}, {200, 30}, 16, size);
    p.options.scale /= static_cast<float>(size);
    expect_decoded(p);
  }
}

}  // namespace
}  // namespace walsh::cuda
