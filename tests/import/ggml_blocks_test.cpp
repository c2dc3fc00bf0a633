// Tests every block type against the reference implementation's decoder
// (tools/make_gguf_goldens.py).
#include "import/ggml_blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ggml_stream.h"
#include "io/gguf_types.h"

namespace walsh {
namespace {

using Json = nlohmann::json;
std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

std::string fnv1a(const std::vector<float>& values) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const float value : values) {
    const float plain = value + 0.0f;  // one zero
    uint8_t bytes[4];
    std::memcpy(bytes, &plain, 4);
    for (const uint8_t byte : bytes)
      hash = (hash ^ byte) * 0x100000001b3u;
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

TEST(GgmlBlocks, EveryTypeDecodesAsTheReferenceImplementationDoes) {
  const Json all = test::ggml_goldens();
  size_t types = 0;
  for (const auto& [name, golden] : all.items()) {
    SCOPED_TRACE(name);
    const uint32_t id = golden["id"];
    const GgmlTypeInfo* info = ggml_type_info(id);
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->name, name);
    ASSERT_TRUE(can_decode_ggml(id));
    const auto block = from_hex(golden["block"]);
    const auto expected = from_hex(golden["values"]);
    ASSERT_EQ(block.size(), info->block_bytes);
    ASSERT_EQ(expected.size(), info->block * sizeof(float));
    std::vector<float> values(info->block);
    decode_ggml(id, block, values.data());
    for (size_t i = 0; i < values.size(); ++i) {
      float value = 0;
      std::memcpy(&value, &expected[4 * i], 4);
      ASSERT_EQ(values[i], value) << "weight " << i;
    }
    values.resize(test::kStreamBlocks * info->block);
    decode_ggml(id, test::ggml_stream(info->block_bytes, golden["clear"]), values.data());
    EXPECT_EQ(fnv1a(values), golden["stream"].get<std::string>());
    ++types;
  }
  EXPECT_EQ(types, 25u);
}

TEST(GgmlBlocks, TypesWithoutWeightsAreNotDecoded) {
  for (const uint32_t id : {4u, 9u, 15u, 24u, 25u, 26u, 27u, 28u, 40u, 41u, 1000u})
    EXPECT_FALSE(can_decode_ggml(id)) << id;
}

}  // namespace
}  // namespace walsh
