// Tests messages of the command about models split between GPU and CPU where there is no GPU.
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

TEST_F(SplitCommand, LayersOnAGpuChangeNothingWithoutOne) {
  const std::string text = walsh(running(model(), {"--device", "cpu"})).out;
  for (const char* flag : {"--gpu-layers", "-ngl", "--n-gpu-layers"}) {
    const CommandResult r = walsh(running(model(), {flag, "99"}));
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.out, text);
    EXPECT_NE(r.err.find("note: --gpu-layers changes nothing: no GPU is used"), std::string::npos)
        << r.err;
  }
  const CommandResult bench = walsh({"bench", "--synthetic", "tiny", "-ngl", "2", "--device", "cpu",
                                     "-p", "4", "-n", "2", "-r", "1"});
  EXPECT_EQ(bench.status, 0) << bench.err;
  EXPECT_NE(bench.err.find("--gpu-layers changes nothing"), std::string::npos) << bench.err;
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
