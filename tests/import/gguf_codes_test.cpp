// Tests what blocks of GGUF files become, against what they mean.
#include "import/gguf_codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "codec/tensor.h"
#include "ggml_stream.h"
#include "import/ggml_blocks.h"
#include "io/gguf_types.h"

namespace walsh {
namespace {

constexpr float kHalfRounding = 0x1p-11f;

struct Row {
  const Format* format = nullptr;
  bool fits = false;
  std::vector<float> values;  // decoded from the codes
  std::vector<float> meant;   // by ggml
  std::vector<float> scales;
};

Row read(uint32_t type, std::span<const std::byte> blocks, GgufCodes codes) {
  const GgmlTypeInfo& info = *ggml_type_info(type);
  const size_t cols = blocks.size() / info.block_bytes * info.block;
  Row row;
  row.format = gguf_code_format(type, codes);
  row.meant.resize(cols);
  row.values.resize(cols);
  decode_ggml(type, blocks, row.meant.data());
  std::vector<std::byte> bytes(cols * static_cast<size_t>(row.format->code[0].bits) / 8);
  const size_t groups = cols / static_cast<size_t>(row.format->code[0].group);
  std::vector<uint16_t> scales(groups), offsets(groups);
  std::vector<float> scratch(cols);
  row.fits = read_gguf_codes(type, blocks, *row.format, scratch, bytes.data(), scales.data(),
                             offsets.data());
  Tensor tensor;
  tensor.format = row.format;
  tensor.rows = 1;
  tensor.cols = static_cast<int64_t>(cols);
  tensor.pass[0].codes = bytes;
  tensor.pass[0].scales = std::as_bytes(std::span(scales));
  tensor.pass[0].offsets = std::as_bytes(std::span(offsets));
  decode_pass_row(tensor, 0, 0, row.values.data());
  return row;
}

// Returns the largest difference that rounding may make in `count` weights with one scale.
float bound(const std::string& name, const float* meant, size_t count) {
  static const std::set<std::string> kExact = {"Q4_0", "Q5_0", "Q8_0", "IQ4_NL"};
  static const std::set<std::string> kRoundedScales = {"Q4_1", "Q5_1", "Q2_K", "Q3_K",
                                                       "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"};
  if (kExact.contains(name)) return 0;
  float largest = 0, smallest = meant[0], highest = meant[0];
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::fabs(meant[i]));
    smallest = std::min(smallest, meant[i]);
    highest = std::max(highest, meant[i]);
  }
  // This allows for a scale's rounding times the level, the offset's, and scales that are smaller
  // than normal halves.
  if (kRoundedScales.contains(name))
    return 4 * kHalfRounding * largest + 64 * 0x1p-24f + 16 * kHalfRounding * (highest - smallest);
  return largest / 127 * 0.5f * 1.001f + kHalfRounding * largest + 128 * 0x1p-25f;
}

TEST(GgufCodes, EveryTypeIsWhatItsBlocksMeanUpToRounding) {
  const nlohmann::json goldens = test::ggml_goldens();
  size_t types = 0;
  for (const auto& [name, golden] : goldens.items()) {
    SCOPED_TRACE(name);
    const uint32_t type = golden["id"];
    const GgmlTypeInfo& info = *ggml_type_info(type);
    if (info.block == 1 || name == "MXFP4") continue;
    const auto blocks = test::ggml_stream(info.block_bytes, golden["clear"]);
    for (const GgufCodes codes : {GgufCodes::keep, GgufCodes::symmetric}) {
      const Row row = read(type, blocks, codes);
      ASSERT_TRUE(row.fits);
      EXPECT_TRUE(codes == GgufCodes::keep || !row.format->code[0].has_offset);
      const bool rounded = row.format->name == "q8_0" && name != "Q8_0" && name != "Q5_0";
      const auto group = static_cast<size_t>(row.format->code[0].group);
      for (size_t g = 0; g < row.meant.size(); g += group) {
        const float most = bound(rounded ? "rounded" : name, &row.meant[g], group);
        for (size_t i = g; i < g + group; ++i)
          ASSERT_NEAR(row.values[i], row.meant[i], most) << "weight " << i;
      }
    }
    ++types;
  }
  EXPECT_EQ(types, 21u);
}

TEST(GgufCodes, FloatsOfFourBitsAreExactWhereTheirScaleIsAHalf) {
  constexpr uint32_t kMxfp4 = 39;
  const GgmlTypeInfo& info = *ggml_type_info(kMxfp4);
  for (int exponent = 0; exponent < 256; ++exponent) {
    auto blocks = test::ggml_stream(info.block_bytes, nlohmann::json::array());
    for (size_t b = 0; b < test::kStreamBlocks; ++b)
      blocks[b * info.block_bytes] = static_cast<std::byte>(exponent);
    const Row row = read(kMxfp4, blocks, GgufCodes::keep);
    EXPECT_EQ(row.fits, exponent - 128 <= 15) << exponent;
    if (row.fits && exponent - 128 >= -24) {
      EXPECT_EQ(row.values, row.meant) << exponent;
    }
  }
}

TEST(GgufCodes, CodesStayWhatTheyAreAndOnlyTheRestIsRounded) {
  const auto name = [](uint32_t type, GgufCodes codes) {
    const Format* format = gguf_code_format(type, codes);
    return format == nullptr ? std::string_view("none") : format->name;
  };
  EXPECT_EQ(name(12, GgufCodes::keep), "q4_1");
  EXPECT_EQ(name(12, GgufCodes::symmetric), "q8_0");
  EXPECT_EQ(name(10, GgufCodes::keep), "q2_k");
  EXPECT_EQ(name(11, GgufCodes::keep), "q3_k");
  EXPECT_EQ(name(13, GgufCodes::keep), "q5_1");
  EXPECT_EQ(name(14, GgufCodes::keep), "q6_k");
  EXPECT_EQ(name(14, GgufCodes::symmetric), "q8_0");
  EXPECT_EQ(name(6, GgufCodes::keep), "q5_0");
  EXPECT_EQ(name(6, GgufCodes::symmetric), "q8_0");
  EXPECT_EQ(name(21, GgufCodes::keep), "q8_0");  // IQ3_S
  EXPECT_EQ(name(23, GgufCodes::symmetric), "iq4_nl");
  EXPECT_EQ(name(39, GgufCodes::symmetric), "mxfp4");
  EXPECT_EQ(name(2, GgufCodes::keep), "q4_0");
  EXPECT_EQ(name(12, GgufCodes::drop), "none");
  EXPECT_EQ(name(1, GgufCodes::keep), "none");
}

TEST(GgufCodes, ScalesBeyondHalvesAreTold) {
  // A block of Q4_K has factors d and dmin, then twelve bytes of scales and minima, all of which
  // are 63.
  std::vector<std::byte> block(144, std::byte{0xFF});
  const auto set = [&](size_t at, uint16_t half) {
    block[at] = static_cast<std::byte>(half & 0xFF);
    block[at + 1] = static_cast<std::byte>(half >> 8);
  };
  set(0, 0x3C00), set(2, 0x3C00);  // 1
  EXPECT_TRUE(read(12, block, GgufCodes::keep).fits);
  set(0, 0x7000);  // 8192
  EXPECT_FALSE(read(12, block, GgufCodes::keep).fits);
  set(0, 0x3C00), set(2, 0x7C00);  // infinity
  EXPECT_FALSE(read(12, block, GgufCodes::keep).fits);
  set(2, 0x7E00);  // NaN
  EXPECT_FALSE(read(12, block, GgufCodes::keep).fits);
  EXPECT_FALSE(read(12, block, GgufCodes::symmetric).fits);
}

}  // namespace
}  // namespace walsh
