#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace walsh {
namespace {

using Json = nlohmann::json;

class EvalCommand : public CommandTest {
 protected:
  Json eval(std::vector<std::string> arguments) const {
    const std::vector<std::string> common = {"--text", text(), "--chunks", "2",
                                             "--ctx",  "128",  "--json"};
    arguments.insert(arguments.begin(), "eval");
    arguments.insert(arguments.end(), common.begin(), common.end());
    const CommandResult r = walsh(arguments);
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.err, "");
    return Json::parse(r.out);
  }
  // Leaves out the time.
  static Json without_time(Json json) {
    json.erase("seconds");
    json.erase("model");
    return json;
  }
};

TEST_F(EvalCommand, AModelDoesNotDivergeFromItself) {
  const Json j = eval({model(), "--reference", model()});
  for (const char* key :
       {"ppl", "ppl_stderr", "tokens", "ctx", "bpw", "bytes", "top1", "rms_dp", "seconds"})
    EXPECT_TRUE(j[key].is_number()) << key;
  for (const char* key : {"mean", "p99_9", "p99", "median", "max"})
    EXPECT_LE(std::abs(j["kld"][key].get<double>()), 1e-6) << key;
  EXPECT_EQ(j["tokens"], 128);
  EXPECT_EQ(j["ctx"], 128);
  EXPECT_EQ(j["bpw"], 16.0);
  EXPECT_EQ(j["top1"], 1.0);
  EXPECT_EQ(j["ppl"], j["reference"]["ppl"]);
  EXPECT_GT(j["ppl"], 2.0);
  EXPECT_LT(j["ppl"], 200.0);
}

TEST_F(EvalCommand, MoreBitsDivergeLess) {
  const Json three =
      eval({model(), "--quantize", "tq3", "--effort", "fast", "--reference", model()});
  const Json four =
      eval({model(), "--quantize", "tq4", "--effort", "fast", "--reference", model()});
  EXPECT_GT(three["kld"]["mean"], 2 * four["kld"]["mean"].get<double>());
  EXPECT_GT(four["kld"]["mean"], 0.001);
  EXPECT_LT(three["bpw"], 3.2);
  EXPECT_LT(four["top1"], 1.0);
}

TEST_F(EvalCommand, CompressingWhileLoadingGivesTheFilesResult) {
  const std::string path = quantize("a.gguf", "itq3_s", {"--ignore", "re:layers\\.0\\."});
  const Json file_result = eval({path, "--reference", model()});
  const Json online = eval({model(), "--quantize", "itq3_s", "--effort", "fast", "--ignore",
                            "re:layers\\.0\\.", "--reference", model()});
  EXPECT_EQ(without_time(file_result), without_time(online));
}

TEST_F(EvalCommand, TheResultDoesNotDependOnTheNumberOfThreads) {
  const std::string path = quantize("a.gguf", "tq4");
  const Json one = eval({path, "--reference", model(), "-t", "1"});
  const Json three = eval({path, "--reference", model(), "-t", "3"});
  EXPECT_EQ(without_time(one), without_time(three));
}

TEST_F(EvalCommand, TheReferencesActivationsAreItsOwn) {
  const std::string path = quantize("a.gguf", "tq4");
  const Json exact =
      eval({path, "--activations", "f32", "--reference", path, "--reference-activations", "f32"});
  EXPECT_LE(std::abs(exact["kld"]["max"].get<double>()), 1e-6);
  const Json rounded =
      eval({path, "--activations", "i8", "--reference", path, "--reference-activations", "f32"});
  EXPECT_GT(rounded["kld"]["mean"], 1e-5);
}

TEST_F(EvalCommand, CodedCachesDivergeAsTheirBitsSay) {
  const auto kld = [&](const char* keys, const char* values) {
    const bool coded = std::string(keys) != "f16" || std::string(values) != "f16";
    std::vector<std::string> arguments = {model(), "--reference", model(),    "-ctk", keys,
                                          "-ctv",  values,        "--device", "cpu"};
    if (coded) arguments.insert(arguments.end(), {"--kv-window", "0"});
    const Json j = eval(arguments);
    EXPECT_EQ(j["cache"]["keys"], keys);
    EXPECT_EQ(j["cache"]["values"], values);
    EXPECT_EQ(j["cache"]["window"], coded ? 0 : 32);
    return j["kld"]["mean"].get<double>();
  };
  const double three = kld("tq3_0", "tq3_0"), keys = kld("tq3_0", "f16");
  EXPECT_GT(three, keys);
  EXPECT_GT(keys, kld("kt4", "f16"));
  EXPECT_LT(three, 0.1);
  EXPECT_EQ(kld("f16", "f16"), 0);
  const CommandResult r = walsh({"eval", model(), "--text", text(), "--chunks", "1", "--ctx", "64",
                                 "--ctv", "kt3", "--device", "cpu"});
  EXPECT_NE(r.out.find("cache     keys f16, values kt3"), std::string::npos) << r.out;
  const CommandResult plain = walsh({"eval", model(), "--text", text(), "--chunks", "1", "--ctx",
                                     "64", "--kv-window", "8", "--device", "cpu"});
  EXPECT_EQ(plain.status, 0);
  EXPECT_NE(plain.err.find("--kv-window changes nothing"), std::string::npos) << plain.err;
  expect_error(walsh({"eval", model(), "--text", text(), "-ctk", "tq9"}), 2, "tq9");
  expect_error(walsh({"eval", model(), "--text", text(), "--kv-window", "-1"}), 2, "kv-window");
}

TEST_F(EvalCommand, FullAndStridedWindowsScoreMoreTokens) {
  EXPECT_EQ(eval({model(), "--full"})["tokens"], 2 * 127);
  EXPECT_EQ(eval({model(), "--stride", "32"})["tokens"], 127 + 32);
}

TEST_F(EvalCommand, TheTextReportNamesTheStatistics) {
  const CommandResult r = walsh({"eval", model(), "--text", text(), "--chunks", "1", "--ctx", "64",
                                 "--reference", model(), "--verbose"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("Final estimate: PPL over 1 chunks for n_ctx=64 = "), std::string::npos);
  for (const char* name : {"Mean    KLD", "99.9%   KLD", "Median  KLD", "RMS dp", "Same top p"})
    EXPECT_NE(r.out.find(name), std::string::npos) << name << r.out;
  EXPECT_NE(r.err.find("ln(PPL(Q)/PPL(base))"), std::string::npos) << r.err;
}

TEST_F(EvalCommand, RefusesTextsThatCannotBeScored) {
  spill(file("short.txt"), "Too short.");
  expect_error(walsh({"eval", model(), "--text", file("short.txt")}), 2, "--text");
  expect_error(walsh({"eval", model(), "--text", file("none.txt")}), 5, "none.txt");
  expect_error(walsh({"eval", model(), "--text", file(".")}), 3, file("."));
  spill(file("latin.txt"), "caf\xe9 au lait");
  expect_error(walsh({"eval", model(), "--text", file("latin.txt")}), 3,
               "latin.txt: is not a text");
  expect_error(walsh({"eval", model()}), 2, "--text");
  expect_error(walsh({"eval", model(), "--text", text(), "--ctx", "1"}), 2, "--ctx");
  expect_error(walsh({"eval", model(), "--text", text(), "--full", "--stride", "8"}), 2, "--full");
  // This is refused before weights are loaded.
  expect_error(walsh({"eval", file("none"), "--text", text(), "--ctx", "1"}), 2, "--ctx");
  expect_error(walsh({"eval", file("none"), "--text", text(), "--stride", "600"}), 2, "--stride");
}

}  // namespace
}  // namespace walsh
