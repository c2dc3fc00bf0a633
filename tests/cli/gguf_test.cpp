// Runs the commands on GGUF files that walsh did not write.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/gguf_model.h"
#include "gguf_typed.h"

namespace walsh {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class GgufModel : public CommandTest {
 protected:
  std::string write(GgmlType type) const {
    const std::string path = file("model.gguf");
    test::write_gguf_model(model(), path, type);
    return path;
  }
  Json eval(const std::string& path) const {
    const CommandResult r = walsh({"eval", path, "--text", text(), "--reference", model(),
                                   "--chunks", "2", "--ctx", "128", "--json"});
    EXPECT_EQ(r.status, 0) << r.err;
    return Json::parse(r.out);
  }
};

TEST_F(GgufModel, IsTheModelThatItWasMadeFrom) {
  const std::string path = write(GgmlType::bf16);
  const Json result = eval(path);
  EXPECT_EQ(result["kld"]["mean"], 0.0);
  EXPECT_EQ(result["top1"], 1.0);
  const std::vector<std::string> rest = {"--raw", "-p",     "The river", "-n",
                                         "24",    "--temp", "0",         "-q"};
  std::vector<std::string> of_file = {"run", path}, of_folder = {"run", model()};
  of_file.insert(of_file.end(), rest.begin(), rest.end());
  of_folder.insert(of_folder.end(), rest.begin(), rest.end());
  const CommandResult text = walsh(of_file);
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_EQ(text.out, walsh(of_folder).out);
  EXPECT_EQ(walsh({"bench", path, "-p", "8", "-n", "4", "-r", "1"}).status, 0);
}

TEST_F(GgufModel, IsQuantizedAsTheCheckpointIs) {
  const std::string from_file = file("a.gguf"), from_folder = file("b.gguf");
  CommandResult r = walsh({"quantize", write(GgmlType::bf16), from_file, "--type", "tq4"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_THAT(r.err, Not(HasSubstr("note")));
  ASSERT_EQ(walsh({"quantize", model(), from_folder, "--type", "tq4"}).status, 0);
  const Json a = Json::parse(walsh({"inspect", from_file, "--json"}).out);
  const Json b = Json::parse(walsh({"inspect", from_folder, "--json"}).out);
  ASSERT_EQ(a["tensors"].size(), b["tensors"].size());
  std::map<std::string, Json> checksums;
  for (const Json& tensor : b["tensors"])
    checksums[tensor["name"]] = tensor["checksum"];
  for (const Json& tensor : a["tensors"])
    EXPECT_EQ(tensor["checksum"], checksums[tensor["name"]]) << tensor["name"];
}

TEST_F(GgufModel, CodedWeightsKeepTheirCodesAndAreWarnedOf) {
  const std::string path = write(GgmlType::q4_0);
  const double as_stored = eval(path)["kld"]["mean"];
  EXPECT_GT(as_stored, 0.01);
  const CommandResult q = walsh({"quantize", path, file("out.gguf"), "--type", "q8_0"});
  ASSERT_EQ(q.status, 0) << q.err;
  EXPECT_THAT(q.err, HasSubstr("is quantized to less than 8 bits, Q4_0 ("));
  EXPECT_NEAR(eval(file("out.gguf"))["kld"]["mean"], as_stored, 0.02 * as_stored);
  const CommandResult seen = walsh({"inspect", path, "--check"});
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_THAT(seen.out, HasSubstr("Q4_0"));
  EXPECT_THAT(seen.out, HasSubstr("every tensor can be read"));
}

TEST_F(GgufModel, Q8CodesAreThoseOfTheFile) {
  const std::string path = write(GgmlType::q8_0);
  const CommandResult r = walsh({"eval", path, "--text", text(), "--chunks", "1", "--ctx", "64"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_THAT(r.err, HasSubstr("Q8_0 as q8_0 ("));
  EXPECT_LT(eval(path)["kld"]["mean"], 0.002);
}

TEST_F(GgufModel, ATruncatedFileIsOneLineOfEveryCommand) {
  const std::string path = write(GgmlType::q8_0), bytes = slurp(path);
  for (const size_t size : {size_t{10}, bytes.size() / 100, bytes.size() - 1}) {
    spill(path, bytes.substr(0, size));
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"run", path, "-p", "x"},
          {"eval", path, "--text", text()},
          {"quantize", path, file("out.gguf"), "--type", "tq4"},
          {"inspect", path}}) {
      const CommandResult r = walsh(command);
      EXPECT_EQ(r.status, 3) << command[0] << r.err;
      EXPECT_THAT(r.err, HasSubstr("model.gguf"));
      EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    }
  }
  EXPECT_FALSE(std::filesystem::exists(file("out.gguf")));
}

TEST_F(GgufModel, ATruncatedFileOfAnyTypeIsOneLine) {
  const std::string path = file("model.gguf");
  for (const uint32_t type : test::weight_types()) {
    test::write_typed_gguf(path, type);
    const std::string bytes = slurp(path);
    spill(path, bytes.substr(0, bytes.size() - ggml_type_info(type)->block_bytes));
    expect_error(walsh({"run", path, "-p", "x"}), 3, "model.gguf");
    expect_error(walsh({"quantize", path, file("out.gguf"), "--type", "tq4"}), 3, "model.gguf");
  }
  EXPECT_FALSE(std::filesystem::exists(file("out.gguf")));
}

TEST_F(GgufModel, AFileOfAFewBytesIsBadInputOfEveryCommand) {
  const std::string path = file("model.gguf");
  for (const std::string bytes : {"", "G", "GGU"}) {
    spill(path, bytes);
    expect_error(walsh({"quantize", path, file("out.gguf"), "--type", "tq4"}), 3, "model.gguf");
    expect_error(walsh({"run", path, "-p", "x"}), 3, "model.gguf");
  }
}

TEST_F(GgufModel, WithoutTokensItIsSaidWhatTheFileLacks) {
  const std::string path = file("model.gguf");
  test::write_typed_gguf(path, static_cast<uint32_t>(GgmlType::bf16));
  expect_error(walsh({"run", path, "-p", "x"}), 3, "model.gguf: the file holds no tokenizer");
}

TEST_F(GgufModel, AWrongTemplateIsOneLineWhereAConversationIsAskedFor) {
  const std::string path = file("model.gguf");
  const std::vector<std::pair<const char*, int>> cases = {
      {"{% for x in y %}{{ x", 3},
      {"{{ raise_exception('no') }}", 3},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", 4}};
  for (const auto& [text, status] : cases) {
    test::write_gguf_model(model(), path, GgmlType::bf16, text);
    expect_error(walsh({"run", path, "-cnv", "-st", "-p", "x", "-n", "2"}), status,
                 "chat_template");
  }
  const CommandResult r = walsh({"run", path, "--raw", "-p", "x", "-n", "2"});
  EXPECT_EQ(r.status, 0) << r.err;
}

TEST_F(GgufModel, AnOutputThatIsTheInputIsRefused) {
  const std::string path = write(GgmlType::bf16), before = slurp(path);
  EXPECT_EQ(walsh({"quantize", path, path, "--type", "tq4"}).status, 2);
  EXPECT_EQ(slurp(path), before);
}

}  // namespace
}  // namespace walsh
