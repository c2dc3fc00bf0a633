#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace walsh {
namespace {

using RotateCommand = CommandTest;
using Json = nlohmann::json;

TEST_F(RotateCommand, AFileEqualsTheModelCompressedInMemory) {
  const std::string path = quantize("folded.walsh", "tq3", {"--rotate", "residual"});
  const std::string two_sided = quantize("both.walsh", "tq3", {"--rotate", "both"});
  const std::vector<std::string> rest = {"--text", text(),   "--ctx",       "64",   "--chunks",
                                         "2",      "--json", "--reference", model()};
  const auto evaluate = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    const CommandResult r = walsh(arguments);
    EXPECT_EQ(r.status, 0) << r.err;
    return Json::parse(r.out);
  };
  const Json file = evaluate({"eval", path});
  const Json online =
      evaluate({"eval", model(), "--quantize", "tq3", "--rotate", "residual", "--effort", "fast"});
  EXPECT_EQ(file["kld"], online["kld"]);
  EXPECT_EQ(file["ppl"], online["ppl"]);
  const Json both =
      evaluate({"eval", model(), "--quantize", "tq3", "--rotate", "both", "--effort", "fast"});
  EXPECT_EQ(evaluate({"eval", two_sided})["kld"], both["kld"]);
  EXPECT_LT(both["kld"]["mean"].get<double>(), 1.5 * online["kld"]["mean"].get<double>());
  const Json exact = evaluate({"eval", model(), "--quantize", "f32", "--rotate", "residual"});
  EXPECT_LT(exact["kld"]["mean"].get<double>(), 1e-6);
}

TEST_F(RotateCommand, InspectTellsWhatWasFoldedAndMeasuresItAgain) {
  const std::string path = quantize("folded.walsh", "tq4", {"--rotate", "residual"});
  const CommandResult r = walsh({"inspect", path, "--check", "--source", model(), "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const Json json = Json::parse(r.out);
  EXPECT_EQ(json["folded"], "hadamard-1024 seed 42");
  EXPECT_EQ(json["recipe"]["rotate"], "residual");
  EXPECT_EQ(json["suspicious"], 0);
  for (const Json& tensor : json["tensors"]) {
    if (!tensor.contains("nmse_measured")) continue;
    const double stored = tensor["nmse"];
    EXPECT_NEAR(tensor["nmse_measured"].get<double>(), stored, 1e-3 * stored) << tensor["name"];
  }
  EXPECT_NE(walsh({"inspect", path}).out.find("in the residual stream"), std::string::npos);
}

TEST_F(RotateCommand, RefusesWhatMakesNoSense) {
  expect_error(walsh({"quantize", model(), file("x"), "--type", "tq3", "--rotate", "residual",
                      "--rotation", "none"}),
               2, "--rotate residual");
  expect_error(walsh({"eval", model(), "--text", text(), "--rotate", "residual"}), 2, "--rotate");
  expect_error(walsh({"quantize", model(), file("x"), "--type", "tq3", "--rotate", "weights"}), 2,
               "--rotate");
}

// A way to run a model, with or without --quantize, that the CPU does not have.
TEST_F(RotateCommand, WeightsAreNotRotatedOnTheCpu) {
  const std::vector<std::string> cases[] = {
      {"eval", model(), "--text", text(), "--quantize", "tq3"},
      {"eval", quantize("plain.walsh", "tq3"), "--text", text()},
      {"run", model(), "--prompt", "a"},
      {"bench", "--synthetic", "tiny"}};
  for (std::vector<std::string> arguments : cases) {
    arguments.insert(arguments.end(), {"--rotate", "weights", "--device", "cpu"});
    expect_error(walsh(arguments), 2, "--rotate weights works only on a GPU");
  }
}

}  // namespace
}  // namespace walsh
