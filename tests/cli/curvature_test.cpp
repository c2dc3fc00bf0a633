// Tests that `walsh quantize --calibrate TEXT --curvature DIR` uses the folder, or refuses it by
// name before anything is written.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
#include "io/checksum.h"
#include "quantize/curvature_folder.h"
#include "weights/checkpoint_source.h"

namespace walsh {
namespace {

using testing_support::CurvatureFolder;
using testing_support::upper_triangle;

constexpr const char* kQuery = "model.layers.1.self_attn.q_proj.weight";

class CurvatureCommand : public CommandTest {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    std::filesystem::copy(WALSH_TEST_DATA "/models/llama31-tiny", file("model"));
    write_tokenizer();
    std::string text;
    for (int i = 0; i < 3000; ++i)
      text += static_cast<char>('!' + i * i % 17);
    spill(file("text"), text);
    folder_.emplace(file("curvature"));
    folder_->head()["text"] = checksum(std::as_bytes(std::span(text))).hex();
    const CheckpointSource source(Checkpoint::open(file("model")), {});
    for (int layer = 0; layer < 3; ++layer) {
      for (const auto& [part, rows] : kRows) {
        const std::string name = fmt::format("model.layers.{}.{}_proj.weight", layer, part);
        folder_->add(name, rows, upper_triangle(rows), source.stored_checksum(name));
      }
    }
    folder_->save();
  }

  CommandResult quantized(const std::string& out, std::vector<std::string> more = {},
                          bool two_sided = true) const {
    more.insert(more.begin(), {"quantize", file("model"), file(out), "--type", "tq3", "--effort",
                               "fast", "--calibrate", file("text"), "--calibrate-tokens", "1024"});
    if (two_sided) more.insert(more.end(), {"--curvature", file("curvature")});
    return walsh(more);
  }
  void expect_refused(const std::string& reason) const {
    expect_last_line(quantized("refused.gguf"), reason);
    EXPECT_FALSE(std::filesystem::exists(file("refused.gguf")));
  }
  // The command may have told of tensors in front of the error.
  static void expect_last_line(const CommandResult& r, const std::string& reason) {
    EXPECT_EQ(r.status, 3) << r.err;
    const size_t at = r.err.find("walsh: error: ");
    ASSERT_NE(at, std::string::npos) << r.err;
    EXPECT_NE(r.err.find(reason, at), std::string::npos) << reason << "\n" << r.err;
  }

  static constexpr std::pair<const char*, int64_t> kRows[] = {
      {"self_attn.q", 64}, {"self_attn.k", 32}, {"self_attn.v", 32}, {"self_attn.o", 64},
      {"mlp.gate", 112},   {"mlp.up", 112},     {"mlp.down", 64}};
  std::optional<CurvatureFolder> folder_;

 private:
  // Writes one token for each of twenty characters.
  void write_tokenizer() const {
    nlohmann::json vocab;
    for (int i = 0; i < 20; ++i)
      vocab[std::string(1, static_cast<char>('!' + i))] = i;
    const nlohmann::json level = {{"type", "ByteLevel"},
                                  {"add_prefix_space", false},
                                  {"trim_offsets", true},
                                  {"use_regex", true}};
    const nlohmann::json tokenizer = {
        {"version", "1.0"},
        {"added_tokens", nlohmann::json::array()},
        {"pre_tokenizer", level},
        {"decoder", level},
        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
    spill(file("model/tokenizer.json"), tokenizer.dump());
  }
};

TEST_F(CurvatureCommand, ChangesTheBytesAlsoOfAFoldedModel) {
  for (const char* rotate : {"input", "residual"}) {
    const CommandResult two = quantized("two.gguf", {"--rotate", rotate});
    ASSERT_EQ(two.status, 0) << two.err;
    ASSERT_EQ(quantized("one.gguf", {"--rotate", rotate}, false).status, 0);
    EXPECT_FALSE(slurp(file("one.gguf")) == slurp(file("two.gguf"))) << rotate;
    const CommandResult checked = walsh({"inspect", file("two.gguf"), "--check"});
    EXPECT_EQ(checked.status, 0) << checked.err;
  }
}

TEST_F(CurvatureCommand, IsUsedWhileTheDamageOfTensorsIsMeasured) {
  const auto damages = [&](const std::string& kept, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"quantize",
                                          file("model"),
                                          "unused",
                                          "--dry-run",
                                          "--bpw",
                                          "3.4",
                                          "--candidates",
                                          "tq2,tq3",
                                          "--allocate-tokens",
                                          "512",
                                          "--allocate-evals",
                                          "0",
                                          "--sensitivity",
                                          file(kept),
                                          "--calibrate",
                                          file("text"),
                                          "--calibrate-tokens",
                                          "1024"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult r = walsh(arguments);
    EXPECT_EQ(r.status, 0) << r.err;
    return nlohmann::json::parse(slurp(file(kept)))["tensors"];
  };
  EXPECT_NE(damages("one.json", {}), damages("two.json", {"--curvature", file("curvature")}));
}

TEST_F(CurvatureCommand, BelongsToACalibrationText) {
  expect_error(walsh({"quantize", file("model"), file("a.gguf"), "--type", "tq3", "--curvature",
                      file("curvature")}),
               2, "--calibrate");
}

TEST_F(CurvatureCommand, OfAnotherTextOrCheckpointIsRefused) {
  folder_->head()["text"] = "0123";
  folder_->save();
  expect_refused("was measured on another text");
  const std::string text = slurp(file("text"));
  folder_->head()["text"] = checksum(std::as_bytes(std::span(text))).hex();
  folder_->head()["matrices"][kQuery]["weights"] = "0123";
  folder_->save();
  expect_refused(std::string(kQuery) + ": was measured with other weights");
}

TEST_F(CurvatureCommand, ThatIsDamagedIsRefused) {
  const std::string whole = slurp(folder_->file());
  spill(folder_->file(), whole.substr(0, whole.size() - 100));
  expect_refused("layer-00000.safetensors");
  spill(folder_->file(), whole.substr(0, whole.size() - 1) + "x");
  expect_refused("its checksum does not fit");
  folder_->values(kQuery)[7] = std::nanf("");
  folder_->save();
  expect_refused(std::string(kQuery) + ": has NaN or infinity");
}

TEST_F(CurvatureCommand, ThatIsNotPositiveSemidefiniteIsRefused) {
  folder_->values(kQuery) = upper_triangle(64, -2.0f);
  folder_->save();
  expect_refused(std::string(kQuery) + ": the moments of its gradients are not positive");
}

TEST_F(CurvatureCommand, WithoutALayerOrUnfinishedIsRefused) {
  for (const auto& [part, rows] : kRows)
    folder_->remove(fmt::format("model.layers.2.{}_proj.weight", part));
  folder_->save();
  expect_refused("lacks the matrix model.layers.2.");
  std::filesystem::create_directory(file("curvature/work"));
  expect_refused("--resume");
  std::filesystem::remove_all(file("curvature"));
  EXPECT_EQ(quantized("a.gguf").status, 5) << "there is no such folder";
}

}  // namespace
}  // namespace walsh
