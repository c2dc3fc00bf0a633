#include "io/gguf_types.h"

#include "io_testing.h"

namespace walsh {
namespace {

using testing::Bytes;
using testing::expect_error;

TEST(GgmlTypes, SizesFollowTheLibrary) {
  // 256 elements of each type; id 9 (Q8_1) has two half floats per 32 elements.
  const std::vector<std::pair<uint32_t, uint64_t>> expected{
      {0, 1024}, {1, 512},  {2, 144},  {3, 160},   {6, 176},   {7, 192},   {8, 272},
      {9, 288},  {10, 84},  {11, 110}, {12, 144},  {13, 176},  {14, 210},  {15, 292},
      {16, 66},  {17, 74},  {18, 98},  {19, 50},   {20, 144},  {21, 110},  {22, 82},
      {23, 136}, {24, 256}, {25, 512}, {26, 1024}, {27, 2048}, {28, 2048}, {29, 56},
      {30, 512}, {34, 54},  {35, 66},  {39, 136},  {40, 144},  {41, 36}};
  for (const auto& [id, bytes] : expected) {
    const uint64_t dims[] = {256};
    EXPECT_EQ(gguf_tensor_bytes(id, dims, "t"), bytes) << id;
  }
  for (const uint32_t id : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 42u, 0x7FFFFFFFu, ~0u}) {
    EXPECT_EQ(ggml_type_info(id), nullptr) << id;
    expect_error([&] { gguf_tensor_bytes(id, {}, "t"); }, ErrorCode::bad_input,
                 {"unknown element type id " + std::to_string(id)});
  }
}

TEST(GgmlTypes, RowsMustBeWholeBlocks) {
  const uint64_t good[] = {64, 3}, bad[] = {48, 2};
  EXPECT_EQ(gguf_tensor_bytes(2, good, "t"), 6u * 18);
  expect_error([&] { gguf_tensor_bytes(2, bad, "t"); }, ErrorCode::bad_input,
               {"rows of 48 elements", "multiple of 32", "Q4_0"});
  expect_error([&] { gguf_tensor_bytes(8, {}, "t"); }, ErrorCode::bad_input, {"multiple of 32"});
  EXPECT_EQ(gguf_tensor_bytes(0, {}, "t"), 4u);
}

TEST(GgmlTypes, SizesThatOverflowAreRefused) {
  const std::vector<std::vector<uint64_t>> cases{{1ull << 32, 1ull << 32},
                                                 {(1ull << 42) + 1, 1ull << 22},
                                                 {1ull << 63},
                                                 {~0ull},
                                                 {1ull << 62},
                                                 {2, 1ull << 32, 1ull << 31, 3}};
  for (const auto& dims : cases) {
    expect_error([&] { gguf_tensor_bytes(0, dims, "tensor t"); }, ErrorCode::bad_input,
                 {"tensor t", "overflows"});
  }
}

TEST(GgufValue, ConvertsBetweenIntegersThatFit) {
  EXPECT_EQ(GgufValue::number<uint8_t>(200).as_int("k"), 200);
  EXPECT_EQ(GgufValue::number<int8_t>(-5).as_int("k"), -5);
  EXPECT_EQ(GgufValue::number<int32_t>(7).as_uint("k"), 7u);
  EXPECT_EQ(GgufValue::number<uint64_t>(~0ull).as_uint("k"), ~0ull);
  EXPECT_EQ(GgufValue::number<int64_t>(INT64_MIN).as_int("k"), INT64_MIN);
  EXPECT_EQ(GgufValue::number<int16_t>(-3).as_double("k"), -3.0);
  EXPECT_EQ(GgufValue::number(0.25f).as_double("k"), 0.25);
  EXPECT_EQ(GgufValue::number(0.1).as_double("k"), 0.1);
  EXPECT_TRUE(GgufValue::boolean(true).as_bool("k"));
  EXPECT_EQ(GgufValue::text("abc").as_text("k"), "abc");
}

TEST(GgufValue, RefusesOtherTypesByName) {
  const auto refused = [](auto&& call, const std::vector<std::string>& parts) {
    expect_error(call, ErrorCode::bad_input, parts);
  };
  const GgufValue array = GgufValue::numbers(std::vector<uint32_t>{1, 2});
  refused([] { GgufValue::number<int8_t>(-1).as_uint("key k"); }, {"key k", "out of range"});
  refused([] { GgufValue::number(~0ull).as_int("key k"); }, {"out of range"});
  refused([] { GgufValue::number(1.0f).as_int("key k"); }, {"found f32", "an integer"});
  refused([] { GgufValue::text("1").as_int("key k"); }, {"found string", "an integer"});
  refused([] { GgufValue::boolean(true).as_int("key k"); }, {"found bool", "an integer"});
  refused([] { GgufValue::boolean(true).as_double("key k"); }, {"found bool", "a number"});
  refused([&] { array.as_uint("key k"); }, {"found array of 2 u32", "a single value"});
  refused([&] { array.as_text("key k"); }, {"expected string"});
  refused([&] { array.as_texts("key k"); }, {"an array of string"});
  refused([] { GgufValue::number<uint8_t>(1).as_bool("key k"); }, {"found u8", "bool"});
  refused([] { GgufValue::number<uint8_t>(1).as_uints("key k"); }, {"an array"});
  refused([] { GgufValue::texts({"a"}).as_uints("key k"); }, {"array of 1 string"});
  refused([] { GgufValue::texts({}).as_int("key k"); }, {"array of 0 string"});
}

TEST(GgufValue, ConvertsArrays) {
  EXPECT_EQ(GgufValue::numbers(std::vector<int16_t>{-1, 2}).as_ints("k"),
            (std::vector<int64_t>{-1, 2}));
  EXPECT_EQ(GgufValue::numbers(std::vector<uint64_t>{1, ~0ull}).as_uints("k"),
            (std::vector<uint64_t>{1, ~0ull}));
  EXPECT_EQ(GgufValue::numbers(std::vector<float>{0.5f, -2}).as_doubles("k"),
            (std::vector<double>{0.5, -2}));
  EXPECT_TRUE(GgufValue::numbers(std::vector<float>{}).as_doubles("k").empty());
  expect_error(
      [] {
        GgufValue::numbers(std::vector<int8_t>{1, -1}).as_uints("k");
      },
      ErrorCode::bad_input, {"out of range"});
}

TEST(GgufValue, KnowsItsEncodedSize) {
  EXPECT_EQ(GgufValue::number<uint16_t>(1).encoded_size(), 2u);
  EXPECT_EQ(GgufValue::boolean(true).encoded_size(), 1u);
  EXPECT_EQ(GgufValue::text("abc").encoded_size(), 11u);
  EXPECT_EQ(GgufValue::numbers(std::vector<uint64_t>{1, 2}).encoded_size(), 28u);
  EXPECT_EQ(GgufValue::texts({"a", ""}).encoded_size(), 12u + 9 + 8);
  EXPECT_EQ(GgufValue::texts({}).encoded_size(), 12u);
}

TEST(GgufValue, RawBytesMustBeWholeElements) {
  expect_error([] { GgufValue::raw_array(GgufType::u32, Bytes(6)); }, ErrorCode::internal, {});
  expect_error([] { GgufValue::raw_array(GgufType::string, {}); }, ErrorCode::internal, {});
  expect_error([] { GgufValue::raw_scalar(GgufType::u32, Bytes(8)); }, ErrorCode::internal, {});
  EXPECT_EQ(GgufValue::raw_array(GgufType::u32, Bytes(8)).count(), 2u);
}

}  // namespace
}  // namespace walsh
