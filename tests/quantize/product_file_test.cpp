// Tests files with product codes: their content, and how damaged or malicious ones are handled.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

#include "codec/product/product.h"
#include "io/checksum.h"
#include "quantize/file/verify.h"
#include "quantize/pipeline/pipeline.h"
#include "quantize/sealed_file.h"
#include "quantize/tiny_checkpoint.h"
#include "threads.h"
#include "walsh/error.h"
#include "weights/walsh_file.h"

namespace walsh {
namespace {

std::string file_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class ProductFile : public testing::Test {
 protected:
  ProductFile() {
    Recipe recipe;
    recipe.type = &get_format("pq3:layer");
    recipe.rules = {parse_override("up=pq3")};
    recipe.encode.effort = Effort::fast;
    Compressor source(Checkpoint::open(tiny_.path()), tiny_.plan(), recipe, pool_);
    summary_ = quantize_to_file(source, path_, {});
    good_ = file_bytes(path_);
  }

  // Opens a file with damage that the checksum of the header does not show.
  std::unique_ptr<WalshFile> open(std::string bytes) {
    reseal(bytes);
    std::ofstream(tiny_.file("bad.gguf"), std::ios::binary) << bytes;
    return WalshFile::open(tiny_.file("bad.gguf"));
  }
  std::string refusal(const std::string& bytes, const std::string& tensor = "") {
    try {
      auto file = open(bytes);
      if (!tensor.empty()) file->load(tensor);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::bad_input);
      return e.what();
    }
    ADD_FAILURE() << "not refused";
    return "";
  }
  // Replaces all occurrences.
  static std::string replaced(std::string text, const std::string& from, const std::string& to) {
    size_t count = 0;
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size(), ++count)
      text.replace(at, from.size(), to);
    EXPECT_GT(count, 0u);
    return text;
  }

  TinyCheckpoint tiny_{testing::UnitTest::GetInstance()->current_test_info()->name()};
  ThreadPool pool_{test::kThreads};
  std::string path_ = tiny_.file("out.gguf"), good_;
  QuantizeSummary summary_;
};

TEST_F(ProductFile, CodebooksOfTensorsCountInItsBits) {
  uint64_t bytes = 0;
  for (const int64_t rows : {48, 48, 48, 160})  // q, k, v, gate with 96 columns
    bytes += static_cast<uint64_t>(rows) * (3 * 12 + 2) + 1024;
  bytes += 160 * (3 * 12 + 2);             // up
  bytes += 96 * (5 * 12 + 2 * 2) + 1024u;  // down
  EXPECT_EQ(summary_.linear_bytes, bytes);
  EXPECT_EQ(WalshFile::open(path_)->find("up")->arrays.size(), 2u) << "codes and scales only";
}

TEST_F(ProductFile, TheMeasuredErrorEqualsTheStoredOne) {
  auto file = WalshFile::open(path_);
  CheckpointSource checkpoint(Checkpoint::open(tiny_.path()), {});
  for (const char* name : {"q", "up", "down"}) {
    const double stored = file->find(name)->nmse;
    EXPECT_GT(stored, 0.01);
    EXPECT_LT(stored, 0.03);
    EXPECT_NEAR(measure_nmse(*file, checkpoint, tiny_.plan(), name, pool_), stored, 1e-3 * stored);
  }
}

TEST_F(ProductFile, AMissingCodebookIsNamed) {
  const std::string error = refusal(replaced(good_, "q.codebook", "q.codeb00k"));
  EXPECT_NE(error.find("q.codebook"), std::string::npos) << error;
  EXPECT_NE(error.find("missing"), std::string::npos) << error;
}

// The levels of this codebook would not fit in int8; it has the checksum that belongs to it.
TEST_F(ProductFile, ACodebookOutOfRangeIsRefusedThoughItsChecksumIsRight) {
  auto file = WalshFile::open(path_);
  const StoredTensor& q = *file->find("q");
  std::vector<std::string> arrays;
  for (const auto& a : q.arrays)
    arrays.emplace_back(reinterpret_cast<const char*>(a.data()), a.size());
  ASSERT_EQ(arrays[2].size(), size_t{kCodebookBytes});
  std::string bad = good_;
  const size_t at = bad.find(arrays[2]);
  ASSERT_NE(at, std::string::npos);
  bad[at + 5] = arrays[2][5] = static_cast<char>(0x7f);
  ChecksumStream sum;
  for (const std::string& a : arrays)
    sum.update(std::as_bytes(std::span(a)));
  const auto bytes_of = [](const Checksum& c) {
    std::string bytes(16, '\0');
    std::memcpy(bytes.data(), &c.low, 8);
    std::memcpy(bytes.data() + 8, &c.high, 8);
    return bytes;
  };
  bad = replaced(bad, bytes_of(q.checksum), bytes_of(sum.digest()));
  const std::string error = refusal(bad, "q");
  EXPECT_NE(error.find("q.codebook"), std::string::npos) << error;
  EXPECT_NE(error.find("127"), std::string::npos) << error;
  EXPECT_NO_THROW(open(bad)->load("k"));
}

TEST_F(ProductFile, DamagedHeadersAreRefusedOrHarmless) {
  const size_t header = good_.find("walsh.tensor.name"), end = good_.size() / 2;
  ASSERT_LT(header, end);
  Random random(23);
  int opened = 0, refused = 0;
  for (int round = 0; round < 300; ++round) {
    std::string bad = good_;
    for (uint64_t i = 0, count = 1 + random.below(3); i < count; ++i) {
      const uint64_t at = round % 4 == 0 ? random.below(end) : header + random.below(1500);
      bad[at] = static_cast<char>(random.below(4) ? random.next() : 0xff);
    }
    try {
      auto file = open(bad);
      ++opened;
      for (const StoredTensor& t : file->tensors()) {
        EXPECT_EQ(tensor_bytes(*t.format, t.rows, t.cols), t.bytes);
        if (t.rows * t.cols >= 1 << 20) continue;
        const Tensor tensor = file->load(t.name);
        std::vector<float> out(static_cast<size_t>(t.rows * t.cols));
        decode_rows(tensor, 0, t.rows, out.data());
      }
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::bad_input) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(opened, 10);
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace walsh
