#include "io/gguf.h"

#include "gguf_testing.h"

namespace walsh {
namespace {

using testing::Bytes;
using testing::expect_error;
using testing::GgufText;
using testing::hostile_numbers;

void expect_refused(const Bytes& file, const std::vector<std::string>& parts) {
  expect_error([&] { parse_gguf(file, "m.gguf"); }, ErrorCode::bad_input, parts);
}

// Checks everything that a caller may rely on after a successful parse.
void check_invariants(const GgufContent& content, const Bytes& file) {
  for (const auto& tensor : content.tensors) {
    ASSERT_LE(tensor.offset, file.size());
    ASSERT_LE(tensor.bytes, file.size() - tensor.offset);
    ASSERT_GE(tensor.offset, content.data_offset);
    ASSERT_LE(tensor.dims.size(), 4u);
    ASSERT_NE(ggml_type_info(tensor.type), nullptr);
    ASSERT_EQ(content.find_tensor(tensor.name), &tensor);
  }
  for (const auto& entry : content.metadata)
    ASSERT_EQ(content.find(entry.key), &entry.value);
}

TEST(Gguf, ReadsEveryKindOfValueInFileOrder) {
  const Bytes file = testing::valid_gguf(3);
  const GgufContent content = parse_gguf(file, "m.gguf");
  check_invariants(content, file);
  EXPECT_EQ(content.version, 3u);
  EXPECT_EQ(content.alignment, 64u);
  ASSERT_EQ(content.metadata.size(), 7u);
  EXPECT_EQ(content.metadata[0].key, "general.alignment");
  EXPECT_EQ(content.get("name", "m").as_text("m"), "abc");
  EXPECT_TRUE(content.get("flag", "m").as_bool("m"));
  EXPECT_EQ(content.get("f", "m").as_double("m"), 1.5);
  EXPECT_EQ(content.get("neg", "m").as_int("m"), -2);
  EXPECT_EQ(content.get("ints", "m").as_uints("m"), (std::vector<uint64_t>{5, 6, 7}));
  EXPECT_EQ(content.get("words", "m").as_texts("m"), (std::vector<std::string>{"x", "", "yz"}));
  ASSERT_EQ(content.tensors.size(), 2u);
  EXPECT_EQ(content.tensors[0].name, "a");
  EXPECT_EQ(content.tensors[0].dims, (std::vector<uint64_t>{4, 4}));
  EXPECT_EQ(content.tensors[0].bytes, 64u);
  EXPECT_EQ(content.tensors[1].bytes, 64u);
  EXPECT_EQ(content.tensors[0].offset, content.data_offset);
  EXPECT_EQ(content.tensors[1].offset + 64, file.size());
  EXPECT_EQ(content.find("absent"), nullptr);
  EXPECT_EQ(content.find_tensor("absent"), nullptr);
  expect_error([&] { content.get("absent", "m"); }, ErrorCode::bad_input, {"absent is missing"});
}

TEST(Gguf, ReadsVersion2AndTheDefaultAlignment) {
  GgufText text(2, 1, 0);
  text.tensor("t", {8}, 0, 0);
  const GgufContent content = parse_gguf(text.file(32, 32), "m");
  EXPECT_EQ(content.alignment, 32u);
  EXPECT_EQ(content.tensors[0].offset % 32, 0u);
}

TEST(Gguf, RefusesOtherFilesAndVersions) {
  expect_refused(testing::to_bytes("GGML" + std::string(100, '\0')), {"not a GGUF file"});
  EXPECT_FALSE(looks_like_gguf(testing::to_bytes("GGU")));
  EXPECT_TRUE(looks_like_gguf(testing::valid_gguf(3)));
  for (const uint32_t version : {0u, 1u, 4u, 0x7FFFFFFFu, ~0u}) {
    expect_refused(GgufText(version, 0, 0).file(64, 0),
                   {"version " + std::to_string(version), "expected 2 or 3"});
  }
  expect_refused(GgufText(0x03000000u, 0, 0).file(64, 0), {"big-endian"});
}

TEST(Gguf, RefusesEveryTruncation) {
  for (const uint32_t version : {2u, 3u}) {
    const Bytes file = testing::valid_gguf(version);
    for (size_t size = 0; size < file.size(); ++size) {
      SCOPED_TRACE(size);
      // The copy has the exact size, so that a sanitizer sees a read behind the end.
      expect_refused(Bytes(file.begin(), file.begin() + static_cast<ptrdiff_t>(size)), {"m.gguf"});
    }
  }
}

TEST(Gguf, SurvivesHostileNumbersAtEveryOffset) {
  const Bytes file = testing::valid_gguf(3);
  const size_t header = parse_gguf(file, "m").data_offset;
  int accepted = 0, refused = 0;
  for (const size_t width : {1u, 4u, 8u}) {
    for (size_t at = 0; at + width <= header; ++at) {
      for (const uint64_t number : hostile_numbers()) {
        Bytes changed = file;
        std::memcpy(changed.data() + at, &number, width);
        try {
          check_invariants(parse_gguf(changed, "m.gguf"), changed);
          ++accepted;
        } catch (const Error& e) {
          ASSERT_EQ(e.code(), ErrorCode::bad_input) << e.what();
          ++refused;
        }
      }
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted, 1000);  // changes of values, not of structure
}

TEST(Gguf, RefusesHostileCounts) {
  for (const uint64_t number : hostile_numbers()) {
    if (number <= 1) continue;
    SCOPED_TRACE(number);
    expect_refused(GgufText(3, number, 0).file(64, 0), {"m.gguf"});
    expect_refused(GgufText(3, 0, number).file(64, 0), {"m.gguf"});
  }
  expect_refused(GgufText(3, 1ull << 63, 0).file(64, 0), {"number of tensors", "left can hold"});
  expect_refused(GgufText(3, 0, 1ull << 63).file(64, 0), {"metadata pairs", "left can hold"});
}

TEST(Gguf, RefusesHostileLengths) {
  for (const uint64_t number : hostile_numbers()) {
    SCOPED_TRACE(number);
    GgufText key(3, 0, 1);
    key.number<uint64_t>(number).bytes("k").number<uint32_t>(4).number<uint32_t>(1);
    if (number != 1) expect_refused(key.file(64, 0), {"m.gguf"});
    if (number < 2) continue;
    GgufText string(3, 0, 1);
    string.text("k").number<uint32_t>(8).number<uint64_t>(number).bytes("v");
    expect_refused(string.exact(), {"value of k"});
    for (uint32_t type = 0; type <= 12; ++type) {
      GgufText array(3, 0, 1);
      array.text("k").number<uint32_t>(9).number<uint32_t>(type).number<uint64_t>(number);
      expect_refused(array.exact(), {"value of k"});
    }
  }
}

TEST(Gguf, RefusesNestedArraysUnknownTypesAndOddBools) {
  GgufText nested(3, 0, 1);
  nested.text("k").number<uint32_t>(9).number<uint32_t>(9).number<uint64_t>(1);
  nested.number<uint32_t>(4).number<uint64_t>(0);
  expect_refused(nested.file(64, 0), {"value of k", "array of arrays"});
  for (const uint32_t type : {13u, 0x7FFFFFFFu, 0x80000000u, ~0u}) {
    GgufText scalar(3, 0, 1), array(3, 0, 1);
    scalar.text("k").number(type).number<uint64_t>(0);
    array.text("k").number<uint32_t>(9).number(type).number<uint64_t>(0);
    expect_refused(scalar.file(64, 0), {"unknown value type " + std::to_string(type)});
    expect_refused(array.file(64, 0), {"unknown value type " + std::to_string(type)});
  }
  GgufText boolean(3, 0, 1);
  boolean.text("k").number<uint32_t>(7).number<uint8_t>(2);
  expect_refused(boolean.file(64, 0), {"value of k", "neither 0 nor 1"});
}

TEST(Gguf, RefusesDuplicateAndUnprintableNames) {
  GgufText keys(3, 0, 2);
  keys.text("k").number<uint32_t>(0).number<uint8_t>(1);
  keys.text("k").number<uint32_t>(0).number<uint8_t>(1);
  expect_refused(keys.file(64, 0), {"duplicate metadata key k"});
  GgufText names(3, 2, 0);
  names.tensor("t", {16}, 0, 0).tensor("t", {16}, 0, 64);
  expect_refused(names.file(64, 128), {"duplicate tensor t"});
  for (const std::string& name : {std::string(), std::string("a\n"), std::string("a\xff")}) {
    GgufText key(3, 0, 1);
    key.text(name).number<uint32_t>(0).number<uint8_t>(1);
    expect_refused(key.file(64, 0), {"control characters"});
    GgufText tensor(3, 1, 0);
    tensor.tensor(name, {16}, 0, 0);
    expect_refused(tensor.file(64, 64), {"control characters"});
  }
  GgufText long_name(3, 1, 0);
  long_name.tensor(std::string(257, 'n'), {16}, 0, 0);
  expect_refused(long_name.file(64, 64), {"tensor name", "257"});
}

TEST(Gguf, RefusesHostileAlignments) {
  for (const uint64_t number : hostile_numbers()) {
    GgufText text(3, 0, 1);
    text.text("general.alignment").number<uint32_t>(10).number(number);
    if (number == 0x80) {
      EXPECT_EQ(parse_gguf(text.file(128, 0), "m").alignment, 128u);
    } else {
      expect_refused(text.file(64, 0), {"general.alignment", "power of two from 8 to 4096"});
    }
  }
  GgufText text(3, 0, 1);
  text.text("general.alignment").number<uint32_t>(8).text("64");
  expect_refused(text.file(64, 0), {"general.alignment", "found string"});
}

TEST(Gguf, RefusesHostileTensorRecords) {
  const auto one = [](std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
    GgufText text(3, 1, 0);
    text.tensor("t", dims, type, offset);
    return text.file(32, 64);
  };
  EXPECT_EQ(parse_gguf(one({16}, 0, 0), "m").tensors[0].bytes, 64u);
  EXPECT_EQ(parse_gguf(one({8}, 0, 32), "m").tensors[0].bytes, 32u);
  for (const uint64_t number : hostile_numbers()) {
    SCOPED_TRACE(number);
    if (number != 1) expect_refused(one({number, 16}, 0, 0), {"tensor t"});
    if (number != 1) expect_refused(one({16, number}, 0, 0), {"tensor t"});
    if (number != 0) expect_refused(one({16}, 0, number), {"m.gguf"});
  }
  expect_refused(one({16}, 0, 64), {"tensor t", "data end at byte"});
  expect_refused(one({16}, 0, 8), {"tensor t", "not a multiple of 32"});
  expect_refused(one({16}, 0, ~0ull - 31), {"overflows"});
  expect_refused(one({16}, 5, 0), {"tensor t", "unknown element type id 5"});
  expect_refused(one({16}, 2, 0), {"tensor t", "multiple of 32", "Q4_0"});
  expect_refused(one({16, 0}, 0, 0), {"tensor t", "dimension of 0"});
  expect_refused(one({2, 2, 2, 2, 1}, 0, 0), {"tensor t", "5 dimensions"});
  expect_refused(one({1ull << 32, 1ull << 32}, 0, 0), {"tensor t", "overflows"});
  expect_refused(one({(1ull << 42) + 1, 1ull << 22}, 1, 0), {"tensor t"});
}

TEST(Gguf, RefusesOverlappingTensors) {
  GgufText text(3, 2, 0);
  text.tensor("late", {16}, 0, 32).tensor("early", {16}, 0, 0);
  expect_refused(text.file(32, 128), {"tensor late", "overlap", "early"});
  GgufText apart(3, 2, 0);
  apart.tensor("late", {16}, 0, 64).tensor("early", {16}, 0, 0);
  EXPECT_EQ(parse_gguf(apart.file(32, 128), "m").tensors.size(), 2u);
}

}  // namespace
}  // namespace walsh
