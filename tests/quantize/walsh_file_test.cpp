// Tests the metadata of a walsh file, and how modified files are handled.
#include "weights/walsh_file.h"

#include <algorithm>

#include "quantize/sealed_file.h"
#include "quantize/tiny_pipeline.h"
#include "walsh/version.h"

namespace walsh {
namespace {

class WalshFileTest : public TinyPipeline {
 protected:
  // Returns the words of the refusal of a file with these bytes; empty if it is opened.
  std::string refusal(const std::string& bytes) {
    spill(tiny_.file("changed.gguf"), bytes);
    try {
      WalshFile::open(tiny_.file("changed.gguf"));
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::bad_input) << e.what();
      return e.what();
    }
    return "";
  }
};

TEST_F(WalshFileTest, AChangedBitAnywhereInTheHeaderIsFound) {
  const std::string good = quantize(recipe_of("tq3"));
  EXPECT_EQ(refusal(good), "");
  const auto bytes = std::as_bytes(std::span(good));
  const size_t end = parse_gguf(bytes, "").data_offset;
  for (size_t at = 0; at < end; at += 13) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    ASSERT_NE(refusal(bad), "") << at;
  }
}

TEST_F(WalshFileTest, ChangedSeedsAndSettingsAreRefusedAsDamage) {
  std::string bad = quantize(recipe_of("tq3"));
  const size_t table = bad.find(keys::kRotations);
  ASSERT_NE(table, std::string::npos);
  // The place follows key, type, type of the elements and count; the embedding's two passes; kind
  // and block.
  bad[table + std::string(keys::kRotations).size() + 4 + 4 + 8 + 32 + 8] ^= 1;
  EXPECT_NE(refusal(bad).find("header: checksum "), std::string::npos) << refusal(bad);
  EXPECT_NE(refusal(bad).find("the file is damaged"), std::string::npos);
  reseal(bad);
  EXPECT_EQ(refusal(bad), "");
}

TEST_F(WalshFileTest, FilesOfOlderVersionsAreReadWithANote) {
  const std::string now = quantize(recipe_of("tq3"));
  EXPECT_TRUE(WalshFile::open(tiny_.file("out.gguf"))->notes().empty());
  for (const uint32_t version : {1u, 2u}) {
    write_unsealed(now, tiny_.file("old.gguf"), version);
    auto old = WalshFile::open(tiny_.file("old.gguf"));
    ASSERT_EQ(old->notes().size(), 1u);
    EXPECT_TRUE(old->notes()[0].starts_with(tiny_.file("old.gguf") + ": written by an older walsh"))
        << old->notes()[0];
    for (const StoredTensor& tensor : old->tensors())
      EXPECT_NO_THROW(old->load(tensor.name)) << tensor.name;
  }
}

TEST_F(WalshFileTest, AFileOfThisVersionWithoutTheChecksumIsRefused) {
  const std::string now = quantize(recipe_of("tq3"));
  write_unsealed(now, tiny_.file("bare.gguf"), kFileFormatVersion);
  EXPECT_NE(refusal(slurp(tiny_.file("bare.gguf"))).find(keys::kHeader), std::string::npos);
  write_unsealed(now, tiny_.file("later.gguf"), kFileFormatVersion + 1);
  EXPECT_NE(refusal(slurp(tiny_.file("later.gguf"))).find("version 4"), std::string::npos);
}

// A header of some kilobytes must not keep a reader busy for hours.
TEST_F(WalshFileTest, MoreQrRotationsThanTheFileIsWorthAreRefused) {
  for (const int tensors : {8, 64}) {
    const std::string path = tiny_.file("qr.gguf");
    const auto n = static_cast<size_t>(tensors);
    GgufWriter writer;
    std::vector<std::string> names;
    std::vector<uint32_t> rotations;
    std::vector<uint64_t> shapes;
    for (uint32_t i = 0; i < n; ++i) {
      names.push_back("t" + std::to_string(i));
      rotations.insert(rotations.end(), {2, 1024, i, 1, 0, 32, 0, 0});
      shapes.insert(shapes.end(), {1, 1024});
      writer.add_tensor(names.back() + ".codes", GgmlType::i8, {256, 1});
      writer.add_tensor(names.back() + ".scales", GgmlType::i8, {16, 1});
    }
    writer.set(keys::kVersion, GgufValue::number(2u));
    for (const char* key : {keys::kProducer, keys::kRecipe, keys::kConfig, keys::kGenerationConfig,
                            keys::kTokenizer, keys::kTokenizerConfig})
      writer.set(key, GgufValue::text(""));
    writer.set(keys::kNames, GgufValue::texts(names));
    writer.set(keys::kFormats, GgufValue::texts(std::vector<std::string>(n, "tq2")));
    writer.set(keys::kSources, GgufValue::texts(std::vector<std::string>(n, "f32")));
    writer.set(keys::kShapes, GgufValue::numbers(shapes));
    writer.set(keys::kLinear, GgufValue::numbers(std::vector<uint8_t>(n, 1)));
    writer.set(keys::kRotations, GgufValue::numbers(rotations));
    writer.set(keys::kErrors, GgufValue::numbers(std::vector<float>(n)));
    writer.set(keys::kChecksums, GgufValue::numbers(std::vector<uint64_t>(2 * n)));
    writer.open(path);
    for (const std::string& name : names) {
      writer.write(name + ".codes", std::vector<std::byte>(256));
      writer.write(name + ".scales", std::vector<std::byte>(16));
    }
    writer.commit();
    const std::string text = refusal(slurp(path));
    EXPECT_EQ(text.find("qr rotations") != std::string::npos, tensors == 64) << text;
    EXPECT_EQ(text.empty(), tensors == 8) << text;
  }
}

}  // namespace
}  // namespace walsh
