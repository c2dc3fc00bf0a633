#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace walsh {
namespace {

using Json = nlohmann::json;

class CalibrateCommand : public CommandTest {
 protected:
  std::string calibrated(const std::string& name, const std::string& type,
                         std::vector<std::string> more = {}, const std::string& tokens = "2048") {
    more.insert(more.end(), {"--calibrate", text(), "--calibrate-tokens", tokens});
    return quantize(name, type, more);
  }
  double divergence(const std::string& path) const {
    const CommandResult r = walsh({"eval", path, "--text", text(), "--chunks", "2", "--json",
                                   "--reference", model(), "--activations", "f32"});
    EXPECT_EQ(r.status, 0) << r.err;
    return Json::parse(r.out)["kld"]["mean"];
  }
  Json inspected(const std::string& path) const {
    const CommandResult r = walsh({"inspect", path, "--check", "--source", model(), "--json"});
    EXPECT_EQ(r.status, 0) << r.err;
    return Json::parse(r.out);
  }
};

TEST_F(CalibrateCommand, LowersTheDivergenceAlsoOfTrellises) {
  EXPECT_LT(divergence(calibrated("better.gguf", "tc2:h:L14")),
            0.85 * divergence(quantize("plain.gguf", "tc2:h:L14")));
}

// With 8 bits hardly anything is lost, so scales that did not cancel would show.
TEST_F(CalibrateCommand, ScalesOfTheInputsOfOAndDownCancel) {
  EXPECT_LT(divergence(calibrated("a.gguf", "tq4+4")), 0.002);
}

TEST_F(CalibrateCommand, WorksWithAFoldedRotation) {
  const std::vector<std::string> folded = {"--rotate", "residual"};
  const std::string plain = quantize("plain.gguf", "tq3", folded);
  const std::string better = calibrated("better.gguf", "tq3", folded);
  EXPECT_LT(divergence(better), 0.85 * divergence(plain));
  const Json json = inspected(better);
  EXPECT_EQ(json["suspicious"], 0);
  for (const Json& tensor : json["tensors"]) {
    if (!tensor.contains("nmse_measured")) continue;
    EXPECT_NEAR(tensor["nmse_measured"], tensor["nmse"], 1e-3 * tensor["nmse"].get<double>())
        << tensor["name"];
  }
}

TEST_F(CalibrateCommand, LowersTheDivergenceByErrorsThatInspectMeasuresAgain) {
  const std::string path = calibrated("a.gguf", "tq3");
  const std::string plain = quantize("plain.gguf", "tq3");
  EXPECT_LT(divergence(path), 0.85 * divergence(plain));
  const Json json = inspected(path);
  EXPECT_GT(json["tensors"][2]["nmse"], inspected(plain)["tensors"][2]["nmse"]);
  EXPECT_EQ(json["suspicious"], 0);
  EXPECT_EQ(json["recipe"]["calibration"]["tokens"], 2048);
  EXPECT_EQ(json["recipe"]["calibration"]["window"], 512);
  EXPECT_EQ(json["recipe"]["calibration"]["text"].get<std::string>().size(), 32u);
  int measured = 0;
  for (const Json& tensor : json["tensors"]) {
    if (!tensor.contains("nmse_measured")) continue;
    ++measured;
    EXPECT_NEAR(tensor["nmse_measured"], tensor["nmse"], 1e-3 * tensor["nmse"].get<double>())
        << tensor["name"];
  }
  EXPECT_GT(measured, 20);
  const CommandResult r = walsh({"inspect", path, "--check"});
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.err, "");
  EXPECT_NE(r.out.find("calibrated: NMSE"), std::string::npos);
}

TEST_F(CalibrateCommand, WritesTheSameBytesWithAnyNumberOfThreads) {
  const std::string one = slurp(calibrated("one.gguf", "tq3", {"-t", "1"}, "1024"));
  const std::string three = slurp(calibrated("three.gguf", "tq3", {"-t", "3"}, "1024"));
  EXPECT_GT(one.size(), 1000000u);
  EXPECT_TRUE(one == three);
}

TEST_F(CalibrateCommand, OtherTextGivesOtherBytes) {
  const std::string other = file("other.txt");
  spill(other, slurp(text()).substr(20000));
  const std::string a = slurp(calibrated("a.gguf", "tq3", {}, "512"));
  const std::string b =
      slurp(quantize("b.gguf", "tq3", {"--calibrate", other, "--calibrate-tokens", "512"}));
  EXPECT_EQ(a.size(), b.size());
  EXPECT_FALSE(a == b);
}

TEST_F(CalibrateCommand, RefusesATextThatIsTooShortOrNotThere) {
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"quantize", model(), file("a.gguf"), "--type", "tq3"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return walsh(arguments);
  };
  spill(file("short.txt"), "A few words.");
  expect_error(with({"--calibrate", file("short.txt")}), 2, "--calibrate: the text has");
  expect_error(with({"--calibrate", text(), "--calibrate-tokens", "100000000"}), 2,
               "100000000 are needed");
  expect_error(with({"--calibrate", file("absent.txt")}), 5, "absent.txt");
  EXPECT_EQ(with({"--calibrate-tokens", "512"}).status, 2);
  EXPECT_EQ(with({"--calibrate", text(), "--calibrate-tokens", "0"}).status, 2);
  EXPECT_FALSE(std::filesystem::exists(file("a.gguf")));
}

TEST_F(CalibrateCommand, DryRunMeasuresNothingAndPredictsTheSize) {
  const CommandResult r = walsh({"quantize", model(), file("a.gguf"), "--type", "tq3",
                                 "--calibrate", text(), "--dry-run", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const std::string path =
      quantize("b.gguf", "tq3", {"--calibrate", text(), "--calibrate-tokens", "512"});
  const auto predicted = Json::parse(r.out)["bytes"].get<uint64_t>();
  EXPECT_NEAR(static_cast<double>(predicted), static_cast<double>(std::filesystem::file_size(path)),
              64);  // the number of tokens has more digits
}

}  // namespace
}  // namespace walsh
