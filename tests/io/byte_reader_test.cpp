#include "io/byte_reader.h"

#include "io_testing.h"

namespace walsh {
namespace {

using testing::expect_error;
using testing::to_bytes;

TEST(ByteReader, ReadsLittleEndianValuesAtAnyAlignment) {
  std::string text("\x01\x02\x03\x04\x05\x06\x07", 7);
  testing::append_number<uint64_t>(text, 0x1122334455667788ull);
  testing::append_number(text, 1.5f);
  testing::append_number(text, -2.25);
  const auto bytes = to_bytes(text);
  ByteReader reader(bytes, "f");
  EXPECT_EQ(reader.u8("a"), 0x01);
  EXPECT_EQ(reader.u16("b"), 0x0302);
  EXPECT_EQ(reader.u32("c"), 0x07060504u);
  EXPECT_EQ(reader.u64("d"), 0x1122334455667788ull);
  EXPECT_EQ(reader.f32("e"), 1.5f);
  EXPECT_EQ(reader.f64("f"), -2.25);
  EXPECT_EQ(reader.remaining(), 0u);
}

TEST(ByteReader, RefusesToPassTheEndAndStaysWhereItWas) {
  const auto bytes = to_bytes("abc");
  ByteReader reader(bytes, "file.gguf");
  reader.u8("first");
  expect_error([&] { reader.u32("the count"); }, ErrorCode::bad_input,
               {"file.gguf", "at byte 1", "the count", "4 bytes wanted", "2 left"});
  EXPECT_EQ(reader.offset(), 1u);
  expect_error([&] { reader.skip(~0ull, "x"); }, ErrorCode::bad_input, {"at byte 1"});
  expect_error([&] { reader.take(3, "x"); }, ErrorCode::bad_input, {"at byte 1"});
  EXPECT_EQ(reader.u16("rest"), 0x6362);
  expect_error([&] { reader.u8("more"); }, ErrorCode::bad_input, {"at byte 3"});
}

TEST(ByteReader, BoundsStrings) {
  std::string text;
  testing::append_number<uint64_t>(text, 3);
  text += "abcdef";
  const auto bytes = to_bytes(text);
  EXPECT_EQ(ByteReader(bytes, "f").string(3, "s"), "abc");
  ByteReader limited(bytes, "f");
  expect_error([&] { limited.string(2, "the key"); }, ErrorCode::bad_input,
               {"at byte 0", "the key", "length 3", "at most 2"});
  EXPECT_EQ(limited.offset(), 0u);
  for (const uint64_t size : testing::hostile_numbers()) {
    auto changed = bytes;
    std::memcpy(changed.data(), &size, 8);
    ByteReader reader(changed, "f");
    if (size <= 6) {
      EXPECT_EQ(reader.string(~0ull, "s").size(), size);
    } else {
      expect_error([&] { reader.string(~0ull, "s"); }, ErrorCode::bad_input, {"at byte 0"});
    }
  }
}

TEST(ByteReader, AlignsAndRefusesToAlignPastTheEnd) {
  const auto bytes = to_bytes("0123456789");
  ByteReader reader(bytes, "f");
  reader.align(8, "padding");
  EXPECT_EQ(reader.offset(), 0u);
  reader.u8("a");
  reader.align(4, "padding");
  EXPECT_EQ(reader.offset(), 4u);
  reader.skip(5, "b");
  expect_error([&] { reader.align(8, "padding"); }, ErrorCode::bad_input, {"padding"});
}

TEST(ByteReader, AcceptsAnEmptyInput) {
  ByteReader reader({}, "f");
  EXPECT_EQ(reader.remaining(), 0u);
  EXPECT_TRUE(reader.take(0, "nothing").empty());
  expect_error([&] { reader.u8("a"); }, ErrorCode::bad_input, {"at byte 0"});
}

}  // namespace
}  // namespace walsh
