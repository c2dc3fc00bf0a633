#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "quantize/sealed_file.h"
#include "walsh/version.h"

namespace walsh {
namespace {

using InspectCommand = CommandTest;

TEST_F(InspectCommand, ListsTensorsWithTypeSizeRotationAndError) {
  const std::string path = quantize("a.gguf", "tq4+4", {"--seed", "7"});
  const CommandResult r = walsh({"inspect", path, "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const auto json = nlohmann::json::parse(r.out);
  EXPECT_EQ(json["tensors"].size(), 56u);
  EXPECT_EQ(json["recipe"]["type"], "tq4+4");
  EXPECT_EQ(json["recipe"]["seed"], 7);
  EXPECT_NEAR(json["bpw"].get<double>(), 8.25, 0.01);
  for (const auto& tensor : json["tensors"]) {
    if (tensor["name"] != "model.layers.2.mlp.down_proj.weight") continue;
    EXPECT_EQ(tensor["shape"], (std::vector<int>{384, 1056}));
    EXPECT_EQ(tensor["rotation"].size(), 2u);
    EXPECT_LT(tensor["nmse"], 1e-4);
    EXPECT_GT(tensor["nmse"], 1e-6);
  }
  const CommandResult table = walsh({"inspect", path});
  EXPECT_NE(table.out.find("model.layers.2.mlp.down_proj.weight"), std::string::npos);
  EXPECT_NE(table.out.find("hadamard-128"), std::string::npos);
}

TEST_F(InspectCommand, CheckMeasuresTheErrorsAgainstTheSource) {
  const std::string path = quantize("a.gguf", "tq3");
  const CommandResult r = walsh({"inspect", path, "--check", "--source", model(), "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const auto json = nlohmann::json::parse(r.out);
  EXPECT_EQ(json["checked"], true);
  EXPECT_EQ(json["suspicious"], 0);
  for (const auto& tensor : json["tensors"]) {
    if (tensor["type"] != "tq3") continue;
    const double stored = tensor["nmse"];
    EXPECT_NEAR(tensor["nmse_measured"].get<double>(), stored, 0.01 * stored) << tensor["name"];
  }
}

TEST_F(InspectCommand, CheckFailsOnErrorsBeyondTheBound) {
  // The bound is that of the searched scales on rotated weights.
  const std::string path =
      quantize("a.gguf", "tq3", {"--rotation", "none", "--scale", "shape-gain"});
  EXPECT_EQ(walsh({"inspect", path}).status, 0);
  const CommandResult r = walsh({"inspect", path, "--check"});
  EXPECT_EQ(r.status, 1) << r.err;
  EXPECT_NE(r.out.find("checksums of 56 tensors are right"), std::string::npos);
  EXPECT_TRUE(r.err.starts_with("walsh: warning: ")) << r.err;
  const CommandResult j = walsh({"inspect", path, "--check", "--json"});
  EXPECT_EQ(j.status, 1) << j.err;
  EXPECT_GT(nlohmann::json::parse(j.out)["suspicious"], 0);
}

TEST_F(InspectCommand, CheckMeasuresABoundThatTheFileDoesNotTell) {
  const std::string path = quantize("a.gguf", "tq3");
  const std::string other = copied_model("other");
  // These weights are not those of the file.
  const std::string shard = other + "/model-00002-of-00002.safetensors";
  std::string bytes = slurp(shard);
  for (size_t i = bytes.size() / 2; i < bytes.size() / 2 + 200000; i += 2)
    bytes[i + 1] = static_cast<char>(bytes[i + 1] ^ 0x80);
  spill(shard, bytes);
  EXPECT_EQ(walsh({"inspect", path, "--check"}).status, 0);
  const CommandResult r = walsh({"inspect", path, "--check", "--source", other});
  EXPECT_EQ(r.status, 1) << r.err;
  EXPECT_NE(r.err.find("times the bound"), std::string::npos) << r.err;
}

TEST_F(InspectCommand, CheckFindsAFlippedBit) {
  const std::string path = quantize("a.gguf", "tq3");
  std::string bytes = slurp(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  spill(path, bytes);
  expect_error(walsh({"inspect", path, "--check"}), 3, "checksum");
  expect_error(walsh({"run", path, "-p", "a"}), 3, "checksum");
}

// DEL and the C1 controls stand in JSON as they are; a file from elsewhere may hold anything.
TEST_F(InspectCommand, TextOfTheFileDoesNotActOnTheTerminal) {
  const std::string path = quantize("a.gguf", "tq3",
                                    {"--ignore",
                                     "re:down_proj|\x7f|\xC2\x9B"
                                     "31m"});
  const CommandResult r = walsh({"inspect", path});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("re:down_proj|\\x7f|\\xc2\\x9b31m"), std::string::npos) << r.out;
  EXPECT_EQ(r.out.find('\x7f'), std::string::npos) << r.out;
  const CommandResult listed = walsh({"inspect", path, "--json"});
  const auto rules = nlohmann::json::parse(listed.out)["recipe"].dump();
  EXPECT_NE(rules.find("down_proj|\x7f|\xC2\x9B"), std::string::npos) << rules;
  EXPECT_EQ(listed.out.find_first_of("\x7f\xC2\x9B"), std::string::npos) << listed.out;

  std::string bytes = slurp(path);
  const std::string producer = std::string("walsh ") + kVersion;
  bytes.replace(bytes.find(producer), producer.size(), "\x1b[2J\nwalsh:");
  write_unsealed(bytes, path, 2);  // its header has no checksum
  const CommandResult forged = walsh({"inspect", path});
  EXPECT_EQ((forged.out + forged.err).find_first_of("\x1b"), std::string::npos) << forged.out;
  EXPECT_EQ((forged.out + forged.err).find("\nwalsh:)"), std::string::npos) << forged.out;
}

TEST_F(InspectCommand, FindsChangedMetadataAsRunDoes) {
  const std::string good = slurp(quantize("a.gguf", "tq3"));
  for (const char* what : {"walsh.tensor.rotation", "rope_theta"}) {
    std::string bytes = good;
    const size_t at = bytes.find(what);
    ASSERT_NE(at, std::string::npos);
    // This changes a number of the setting, or the seed of the first matrix in the layers.
    const size_t offset = std::string(what) == "rope_theta" ? 13 : 21 + 16 + 32 + 32 + 8;
    bytes[at + offset] = static_cast<char>(bytes[at + offset] ^ 1);
    spill(file("b.gguf"), bytes);
    expect_error(walsh({"inspect", file("b.gguf")}), 3, "header: checksum");
    expect_error(walsh({"run", file("b.gguf"), "-p", "a"}), 3, "header: checksum");
  }
}

TEST_F(InspectCommand, SaysOfAnOlderFileThatItsMetadataAreNotChecked) {
  write_unsealed(slurp(quantize("a.gguf", "tq3")), file("old.gguf"), 2);
  for (const CommandResult& r : {walsh({"inspect", file("old.gguf"), "--check"}),
                                 walsh({"run", file("old.gguf"), "-p", "a", "-n", "1", "-q"})}) {
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.err.find("walsh: note: " + file("old.gguf") + ": written by an older walsh"),
              std::string::npos)
        << r.err;
  }
}

TEST_F(InspectCommand, AnOlderFoldedFileRunsButIsNotMeasured) {
  const std::string path = quantize("a.gguf", "tq3", {"--rotate", "residual"});
  write_unsealed(slurp(path), file("old.gguf"), 2);
  EXPECT_EQ(walsh({"inspect", file("old.gguf"), "--check"}).status, 0);
  EXPECT_EQ(walsh({"run", file("old.gguf"), "-p", "a", "-n", "1", "-q"}).status, 0);
  const CommandResult r = walsh({"inspect", file("old.gguf"), "--check", "--source", model()});
  EXPECT_EQ(r.status, 3) << r.err;
  EXPECT_EQ(r.out, "");
  EXPECT_NE(r.err.find("old.gguf: cannot be measured against its source"), std::string::npos)
      << r.err;
}

TEST_F(InspectCommand, RefusesWhatIsNoWalshFile) {
  spill(file("a.gguf"), "GGUF");
  expect_error(walsh({"inspect", file("a.gguf")}), 3, "a.gguf");
  spill(file("b.gguf"), "");
  expect_error(walsh({"inspect", file("b.gguf")}), 3, "b.gguf");
  expect_error(walsh({"inspect", file("none.gguf")}), 5, "none.gguf");
  const std::string path = quantize("c.gguf", "tq3");
  expect_error(walsh({"inspect", path, "--source", model()}), 2, "--source");
  EXPECT_NE(walsh({"inspect", model()}).out.find("12.81 M weights, none of them coded\n"),
            std::string::npos);
}

}  // namespace
}  // namespace walsh
