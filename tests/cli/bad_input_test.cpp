// Tests files and command lines that must end in one clear line, the right exit status and nothing
// half-written.
#include <gtest/gtest.h>

#include <cstring>

#include "cli/command.h"

namespace walsh {
namespace {

class BadInput : public CommandTest {
 protected:
  static constexpr const char* kShard = "model-00002-of-00002.safetensors";

  // Replaces `from` in a file of the model by `to`.
  static void edit(const std::string& path, const std::string& from, const std::string& to) {
    std::string text = slurp(path);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    spill(path, text.replace(at, from.size(), to));
  }
  CommandResult quantize_folder(const std::string& folder) const {
    return walsh({"quantize", folder, file("out.gguf"), "--type", "tq3", "--effort", "fast"});
  }
  void expect_refused(const std::string& folder, int status, const std::string& where) const {
    const CommandResult r = quantize_folder(folder);
    EXPECT_EQ(r.status, status) << r.err;
    const size_t line = r.err.find("walsh: error: ");
    ASSERT_NE(line, std::string::npos) << r.err;
    EXPECT_NE(r.err.find(where, line), std::string::npos) << r.err;
    EXPECT_EQ(r.err.find('\n', line), r.err.size() - 1) << r.err;
    EXPECT_FALSE(std::filesystem::exists(file("out.gguf")));
  }
};

TEST_F(BadInput, ATruncatedFileIsRefusedAtEveryLength) {
  const std::string path = quantize("a.gguf", "tq3");
  const std::string bytes = slurp(path);
  const size_t size = bytes.size();
  for (const size_t length : {size_t{0}, size_t{1}, size_t{4}, size_t{23}, size_t{24}, size_t{1000},
                              size / 3, size - 5000, size - 1}) {
    spill(path, bytes.substr(0, length));
    expect_error(walsh({"inspect", path}), 3, "a.gguf");
  }
}

TEST_F(BadInput, CountsOfAHeaderAreNotTrusted) {
  const std::string path = quantize("a.gguf", "tq3");
  const std::string bytes = slurp(path);
  for (const size_t offset : {size_t{4}, size_t{8}, size_t{16}, size_t{24}}) {
    for (const uint64_t value : {uint64_t{0}, uint64_t{1}, UINT64_MAX, uint64_t{1} << 63}) {
      std::string bad = bytes;
      std::memcpy(bad.data() + offset, &value, offset == 4 ? 4 : 8);
      spill(path, bad);
      expect_error(walsh({"inspect", path}), 3, "a.gguf");
    }
  }
}

TEST_F(BadInput, AMissingFolderOrFileIsNamed) {
  expect_refused(file("nothing"), 5, "nothing");
  std::filesystem::create_directory(file("empty"));
  expect_refused(file("empty"), 3, "config.json");
  expect_refused(file(std::string(300, 'a')), 5, "aaa");  // no name that a system could have
}

TEST_F(BadInput, AFileOfACheckpointIsNotTheCheckpoint) {
  for (const std::string name : {"/config.json", "/model-00001-of-00002.safetensors"}) {
    expect_refused(model() + name, 3, "a checkpoint is given as its folder");
    expect_error(walsh({"run", model() + name, "-p", "a"}), 3, "as its folder");
    expect_error(walsh({"inspect", model() + name}), 3, "as its folder");
  }
}

TEST_F(BadInput, AMissingShardIsNamed) {
  const std::string folder = copied_model();
  std::filesystem::remove(folder + "/" + kShard);
  expect_refused(folder, 3, kShard);
}

TEST_F(BadInput, ATruncatedShardIsNamed) {
  const std::string folder = copied_model();
  const std::string shard = folder + "/" + kShard;
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 2);
  expect_refused(folder, 3, kShard);
}

TEST_F(BadInput, AWrongElementTypeIsNamedWithItsTensor) {
  const std::string folder = copied_model();
  edit(folder + "/" + kShard, "\"BF16\"", "\"I16\" ");
  expect_refused(folder, 3, "I16");
}

TEST_F(BadInput, NanWeightsAreNamedWithTensorAndPosition) {
  const std::string folder = copied_model();
  const std::string shard = folder + "/" + kShard;
  std::string bytes = slurp(shard);
  // Every weight in the shard's last 4 MB is NaN, so that no matrix there can be quantized.
  for (size_t i = bytes.size() - 4000000; i < bytes.size(); i += 2)
    std::memcpy(bytes.data() + i, "\xc0\x7f", 2);
  spill(shard, bytes);
  expect_refused(folder, 3, "model.layers.");
}

TEST_F(BadInput, UnknownArchitecturesAndKeysAreRefusedByName) {
  const std::string folder = copied_model();
  const std::string config = slurp(folder + "/config.json");
  edit(folder + "/config.json", "LlamaForCausalLM", "MambaForCausalLM");
  expect_refused(folder, 3, "MambaForCausalLM");
  spill(folder + "/config.json", config);
  edit(folder + "/config.json", "{", "{\"logit_softcap\": 30.0,");
  expect_refused(folder, 3, "logit_softcap");
  spill(folder + "/config.json", "{\"model_type\": ");
  expect_refused(folder, 3, "config.json");
}

TEST_F(BadInput, AConfigThatDoesNotFitTheTensorsIsRefused) {
  const std::string folder = copied_model();
  edit(folder + "/config.json", "\"num_hidden_layers\": 6", "\"num_hidden_layers\": 7");
  expect_refused(folder, 3, "model.layers.6.");
}

TEST_F(BadInput, ABrokenTokenizerIsRefused) {
  const std::string folder = copied_model();
  spill(folder + "/tokenizer.json", "{\"model\": 3}");
  expect_error(walsh({"run", folder, "-p", "a"}), 3, "tokenizer");
}

TEST_F(BadInput, WrongCommandLinesAreUsageErrors) {
  expect_error(walsh({"quantize", model(), file("a"), "--type", "tq3", "--frobnicate"}), 2,
               "--frobnicate");
  expect_error(walsh({"frobnicate"}), 2, "frobnicate");
  expect_error(walsh({}), 2, "command");
  expect_error(walsh({"quantize", model(), "--type", "tq3"}), 2, "OUT");
  expect_error(walsh({"bench"}), 2, "MODEL");
  expect_error(walsh({"run", model(), "-p", "a", "--quantize", "q8_0", "--activations", "f16",
                      "--device", "cpu"}),
               2, "f16");
}

TEST_F(BadInput, AMessageStaysOneLine) {
  expect_error(walsh({"inspect", file("two\nlines\x1b[31m.gguf")}), 5, "two lines\\x1b[31m");
}

TEST_F(BadInput, AnOutputThatCannotBeWrittenIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full on this system";
  const std::string line = quoted(WALSH_COMMAND) + " --help > /dev/full 2> " + quoted(file("err"));
  const int raw = std::system(line.c_str());
  EXPECT_EQ(WEXITSTATUS(raw), 5);
  EXPECT_TRUE(slurp(file("err")).starts_with("walsh: error: standard output: "));
}

// Options that no command can use must be refused before hours of encoding.
TEST_F(BadInput, QuantizeReadsWhatRunWillRead) {
  const std::string folder = copied_model(), out = file("a.gguf");
  const auto refused = [&](const char* name, const std::string& text) {
    const std::string path = folder + "/" + name, good = slurp(path);
    spill(path, text);
    for (const std::vector<std::string>& choice :
         {std::vector<std::string>{"--type", "tq3"},
          {"--bpw", "3.3"},
          {"--type", "tq3", "--dry-run"},
          {"--type", "tc3:h", "--calibrate", this->text()}}) {
      std::vector<std::string> arguments = {"quantize", folder, out};
      arguments.insert(arguments.end(), choice.begin(), choice.end());
      expect_error(walsh(arguments), 3, folder);
    }
    expect_error(walsh({"run", folder, "-p", "a"}), 3, folder);
    spill(path, good);
  };
  refused("tokenizer.json", "{");
  refused("tokenizer.json", R"({"model": {"type": "Unigram"}})");
  refused("generation_config.json", "[1");
  refused("generation_config.json", R"({"eos_token_id": 100000})");
  EXPECT_FALSE(std::filesystem::exists(out));
  std::filesystem::remove(folder + "/tokenizer.json");
  EXPECT_EQ(walsh({"quantize", folder, out, "--type", "tq3", "--effort", "fast"}).status, 0);
}

}  // namespace
}  // namespace walsh
