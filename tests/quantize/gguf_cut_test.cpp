// Tests truncated files with every element type.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gguf_typed.h"
#include "import/gguf_checkpoint.h"
#include "io/gguf.h"
#include "quantize/pipeline/open.h"
#include "temporary_folder.h"
#include "walsh/error.h"
#include "weights/checkpoint_source.h"

namespace walsh {
namespace {

class GgufCut : public testing::TestWithParam<uint32_t> {
 protected:
  void SetUp() override {
    test::write_typed_gguf(path_, GetParam());
    std::ifstream in(path_, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
  }

  // Returns the error for the first `size` bytes of the file.
  Error cut(size_t size) const {
    std::filesystem::resize_file(path_, size);
    try {
      CheckpointSource::open(path_);
    } catch (const Error& e) {
      return e;
    }
    ADD_FAILURE() << size << " of " << bytes_.size() << " bytes are accepted";
    return {ErrorCode::internal, "", ""};
  }

  test::TemporaryFolder folder_;
  const std::string path_ = folder_.file("model.gguf");
  std::string bytes_;
};

TEST_P(GgufCut, WhereverItEndsIsOneLineThatNamesTheFile) {
  const GgufContent content = parse_gguf(std::as_bytes(std::span(bytes_)), "model");
  const uint64_t block = ggml_type_info(GetParam())->block_bytes;
  std::vector<size_t> sizes = {4, 8, 24, content.data_offset / 2, content.data_offset};
  for (const GgufTensor& tensor : content.tensors) {
    sizes.push_back(tensor.offset);
    sizes.push_back(tensor.offset + 1);
    sizes.push_back(tensor.offset + block);
    sizes.push_back(tensor.offset + tensor.bytes - 1);
  }
  std::sort(sizes.rbegin(), sizes.rend());
  for (const size_t size : sizes) {
    const Error e = cut(size);
    EXPECT_EQ(e.code(), ErrorCode::bad_input) << size;
    const std::string text = e.what();
    EXPECT_NE(text.find("model.gguf"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

TEST_P(GgufCut, TheWholeFileIsRead) {
  CheckpointSource source = CheckpointSource::open(path_, GgufCodes::keep);
  for (const std::string& name : source.names())
    EXPECT_NE(source.load(name).rows, 0) << name;
}

INSTANTIATE_TEST_SUITE_P(Types, GgufCut, testing::ValuesIn(test::weight_types()),
                         [](const auto& info) { return ggml_type_info(info.param)->name; });

TEST(OpenCompressor, AFileThatIsNoModelIsBadInputAndOneOfWalshUsage) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("model.gguf");
  ThreadPool pool(1);
  const auto code = [&] {
    try {
      open_compressor(path, Recipe(), pool);
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("model.gguf"), std::string::npos) << e.what();
      return e.code();
    }
    return ErrorCode::internal;
  };
  for (const std::string text : {"", "G", "GGU", "<html>"}) {
    std::ofstream(path, std::ios::binary) << text;
    EXPECT_EQ(code(), ErrorCode::bad_input) << text;
  }
  std::filesystem::remove(path);
  GgufWriter own(32);
  own.set("walsh.format_version", GgufValue::number<uint32_t>(1));
  own.open(path);
  own.commit();
  EXPECT_EQ(code(), ErrorCode::usage);
}

}  // namespace
}  // namespace walsh
