// Models on a GPU and the CPU: what the command says where there is no GPU.
#include <gtest/gtest.h>

#include "cli/command.h"

namespace walsh {
namespace {

using SplitCommand = CommandTest;

std::vector<std::string> running(const std::string& model, const std::vector<std::string>& more) {
  std::vector<std::string> all = {"run", model, "-p", "The river", "-n", "8", "--temp", "0"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST_F(SplitCommand, LayersOnAGpuAreRefusedWithoutOne) {
  for (const char* flag : {"--gpu-layers", "-ngl", "--n-gpu-layers"}) {
    const CommandResult r = walsh(running(model(), {flag, "1"}));
    expect_error(r, 2, "gpu-layers: 1 asked for, but no GPU is used");
  }
  expect_error(walsh({"bench", "--synthetic", "tiny", "-ngl", "2", "--device", "cpu"}), 2,
               "gpu-layers: 2 asked for");
  expect_error(walsh({"eval", model(), "--text", text(), "-ngl", "3"}), 2,
               "gpu-layers: 3 asked for");
  expect_error(walsh({"serve", model(), "--port", "0", "-ngl", "4"}), 2, "gpu-layers: 4 asked for");
}

TEST_F(SplitCommand, NoLayersOnAGpuAreTheCpu) {
  const CommandResult cpu = walsh(running(model(), {"--device", "cpu"}));
  ASSERT_EQ(cpu.status, 0) << cpu.err;
  for (const char* device : {"auto", "cuda"}) {
    const CommandResult none = walsh(running(model(), {"-ngl", "0", "--device", device}));
    EXPECT_EQ(none.status, 0) << none.err;
    EXPECT_EQ(none.out, cpu.out);
  }
  const CommandResult planned = walsh(running(model(), {"-ngl", "auto", "-ncmoe", "auto"}));
  EXPECT_EQ(planned.status, 0) << planned.err;
  EXPECT_EQ(planned.out, cpu.out);
}

TEST_F(SplitCommand, ExpertsAreThoseOfTheModel) {
  expect_error(walsh({"bench", "--synthetic", "tiny", "--cpu-experts", "1"}), 2,
               "cpu-experts: the model has no experts");
  const CommandResult r = walsh(
      {"bench", "--synthetic", "tiny-moe", "--n-cpu-moe", "1", "-p", "4", "-n", "2", "-r", "1"});
  EXPECT_EQ(r.status, 0) << r.err;
}

TEST_F(SplitCommand, NumbersOfLayersAreNumbers) {
  for (const char* wrong : {"-1", "x", "1.5", "", "99999999"}) {
    const CommandResult r = walsh(running(model(), {"--gpu-layers=" + std::string(wrong)}));
    EXPECT_EQ(r.status, 2) << wrong << r.err;
    EXPECT_EQ(r.out, "") << wrong;
  }
}

}  // namespace
}  // namespace walsh
