#include "io/safetensors.h"

#include <fmt/format.h>

#include "io/mapped_file.h"
#include "io_testing.h"

namespace walsh {
namespace {

using testing::Bytes;
using testing::expect_error;
using testing::to_bytes;

Bytes make_file(std::string_view header, size_t data_bytes) {
  std::string text;
  testing::append_number<uint64_t>(text, header.size());
  text += header;
  text.append(data_bytes, 'd');
  return to_bytes(text);
}

void expect_refused(const Bytes& file, const std::vector<std::string>& parts) {
  expect_error([&] { parse_safetensors(file, "m.safetensors"); }, ErrorCode::bad_input, parts);
}

// Takes a header with one tensor "t" of 8 data bytes, one of whose fields is replaced.
void expect_field_refused(std::string_view fields, const std::vector<std::string>& parts) {
  expect_refused(make_file("{\"t\":{" + std::string(fields) + "}}", 8), parts);
}

constexpr std::string_view kTwoTensors =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
    R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})";

TEST(Safetensors, ListsTensorsInTheOrderOfTheData) {
  const auto entries = parse_safetensors(make_file(std::string(kTwoTensors) + "   ", 16), "m");
  ASSERT_EQ(entries.size(), 2u);
  const uint64_t start = 8 + kTwoTensors.size() + 3;
  EXPECT_EQ(entries[0].name, "a");
  EXPECT_EQ(entries[0].dtype, "F32");
  EXPECT_TRUE(entries[0].shape.empty());
  EXPECT_EQ(entries[0].offset, start);
  EXPECT_EQ(entries[0].bytes, 4u);
  EXPECT_EQ(entries[1].name, "b");
  EXPECT_EQ(entries[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(entries[1].offset, start + 4);
  EXPECT_EQ(entries[1].bytes, 12u);
}

TEST(Safetensors, AcceptsAFileWithoutTensorsAndEmptyTensors) {
  EXPECT_TRUE(parse_safetensors(make_file("{}", 0), "m").empty());
  const auto entries =
      parse_safetensors(make_file(R"({"e":{"dtype":"I64","shape":[3,0],"data_offsets":[8,8]},)"
                                  R"("t":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
                                  8),
                        "m");
  EXPECT_EQ(entries.size(), 2u);
}

TEST(Safetensors, KnowsEveryDtypeOfTheFormat) {
  // Sixteen elements take 2 * bits bytes.
  for (const char* dtype :
       {"BOOL",    "F4",          "F6_E2M3",     "F6_E3M2", "U8",  "I8",  "F8_E5M2", "F8_E4M3",
        "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",     "U16", "F16", "BF16",    "I32",
        "U32",     "F32",         "C64",         "F64",     "I64", "U64"}) {
    const auto bits = safetensors_dtype_bits(dtype);
    ASSERT_TRUE(bits) << dtype;
    const auto size = static_cast<size_t>(*bits) * 2;
    const std::string header = std::string(R"({"t":{"dtype":")") + dtype +
                               R"(","shape":[4,4],"data_offsets":[0,)" + std::to_string(size) +
                               "]}}";
    EXPECT_EQ(parse_safetensors(make_file(header, size), "m").at(0).bytes, size) << dtype;
  }
  EXPECT_EQ(safetensors_dtype_bits("F16"), 16);
  EXPECT_EQ(safetensors_dtype_bits("F4"), 4);
  EXPECT_EQ(safetensors_dtype_bits("f16"), std::nullopt);
}

TEST(Safetensors, RefusesEveryTruncation) {
  const Bytes file = make_file(kTwoTensors, 16);
  ASSERT_EQ(parse_safetensors(file, "m").size(), 2u);
  for (size_t size = 0; size < file.size(); ++size) {
    SCOPED_TRACE(size);
    // The copy has the exact size, so that a sanitizer sees a read behind the end.
    expect_refused(Bytes(file.begin(), file.begin() + static_cast<ptrdiff_t>(size)),
                   {"m.safetensors"});
  }
}

TEST(Safetensors, RefusesTrailingBytes) {
  expect_refused(make_file(kTwoTensors, 17), {"cover 16 of 17 bytes"});
}

TEST(Safetensors, RefusesHostileHeaderLengths) {
  const Bytes file = make_file(kTwoTensors, 16);
  for (const uint64_t length : testing::hostile_numbers()) {
    if (length == kTwoTensors.size()) continue;
    SCOPED_TRACE(length);
    Bytes changed = file;
    std::memcpy(changed.data(), &length, 8);
    expect_refused(changed, {"m.safetensors"});
  }
  expect_refused(make_file(" {}", 0), {"does not start with '{'"});
  expect_refused(make_file("[]", 0), {"does not start with '{'"});
  std::string huge;
  testing::append_number<uint64_t>(huge, 100'000'001);
  expect_refused(to_bytes(huge + "{}"), {"the header has 100000001 bytes"});
}

TEST(Safetensors, RefusesHostileNumbersInEveryField) {
  for (const uint64_t number : testing::hostile_numbers()) {
    SCOPED_TRACE(number);
    const std::string n = std::to_string(number);
    if (number != 8) {
      expect_field_refused(R"("dtype":"U8","shape":[)" + n + R"(],"data_offsets":[0,8])", {"t"});
      expect_field_refused(R"("dtype":"U8","shape":[8],"data_offsets":[0,)" + n + "]", {"t"});
    }
    if (number != 1) {
      expect_field_refused(R"("dtype":"U8","shape":[8,)" + n + R"(],"data_offsets":[0,8])", {"t"});
    }
    if (number != 0) {
      expect_field_refused(R"("dtype":"U8","shape":[8],"data_offsets":[)" + n + ",8]", {"t"});
    }
  }
}

TEST(Safetensors, RefusesShapesWhoseSizeWraps) {
  // 2^32 * 2^32 * 8 wraps to 0, (2^61 + 1) * 8 wraps to 8.
  expect_field_refused(R"("dtype":"U8","shape":[4294967296,4294967296,8],"data_offsets":[0,0])",
                       {"overflows"});
  expect_field_refused(R"("dtype":"F64","shape":[2305843009213693953],"data_offsets":[0,8])",
                       {"overflows"});
}

TEST(Safetensors, RefusesWrongFields) {
  expect_field_refused(R"("shape":[8],"data_offsets":[0,8])", {"tensor t", "dtype", "missing"});
  expect_field_refused(R"("dtype":"U8","data_offsets":[0,8])", {"shape", "missing"});
  expect_field_refused(R"("dtype":"U8","shape":[8])", {"data_offsets", "missing"});
  expect_field_refused(R"("dtype":7,"shape":[8],"data_offsets":[0,8])", {"integer 7"});
  expect_field_refused(R"("dtype":"Q4\n","shape":[8],"data_offsets":[0,8])",
                       {"unknown dtype \"Q4\\x0a\""});
  expect_field_refused(R"("dtype":"U8","shape":8,"data_offsets":[0,8])", {"an array"});
  expect_field_refused(R"("dtype":"U8","shape":[8.0],"data_offsets":[0,8])", {"number 8.0"});
  expect_field_refused(R"("dtype":"U8","shape":[-8],"data_offsets":[0,8])", {"integer -8"});
  expect_field_refused(R"("dtype":"U8","shape":["8"],"data_offsets":[0,8])", {"the string"});
  expect_field_refused(R"("dtype":"U8","shape":[8],"data_offsets":[0,4,8])", {"not a pair"});
  expect_field_refused(R"("dtype":"U8","shape":[8],"data_offsets":[8,0])", {"in order"});
  expect_field_refused(R"("dtype":"U8","shape":[8],"data_offsets":[0,9])", {"inside"});
  expect_field_refused(R"("dtype":"U8","shape":[7],"data_offsets":[0,8])", {"give 7", "span 8"});
  expect_field_refused(R"("dtype":"F4","shape":[15],"data_offsets":[0,8])", {"whole bytes"});
  expect_field_refused(R"("dtype":"U8","shape":[8],"data_offsets":[0,8],"x":1)", {"besides"});
  expect_field_refused(R"("dtype":"U8","shape":[8,1,1,1,1,1,1,1,1],"data_offsets":[0,8])",
                       {"9 dimensions"});
}

TEST(Safetensors, RefusesHolesAndOverlaps) {
  const auto two = [](int a, int b, int c, int d, size_t size) {
    const auto tensor = [](const char* name, int begin, int end) {
      return fmt::format(R"("{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}})", name,
                         end - begin, begin, end);
    };
    return make_file(fmt::format("{{{},{}}}", tensor("x", a, b), tensor("y", c, d)), size);
  };
  EXPECT_EQ(parse_safetensors(two(4, 8, 0, 4, 8), "m").size(), 2u);
  expect_refused(two(0, 3, 4, 8, 8), {"tensor y", "byte 4, expected 3", "hole"});
  expect_refused(two(0, 5, 4, 8, 8), {"tensor y", "byte 4, expected 5", "overlap"});
  expect_refused(two(0, 8, 0, 8, 8), {"overlap"});
  expect_refused(two(1, 4, 4, 8, 8), {"tensor x", "expected 0", "hole"});
  expect_refused(two(0, 3, 3, 6, 8), {"cover 6 of 8"});
}

TEST(Safetensors, RefusesDuplicateAndUnprintableNames) {
  const std::string tensor = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  expect_refused(make_file("{\"t\":" + tensor + ",\"t\":" + tensor + "}", 0), {"duplicate key"});
  expect_refused(make_file("{\"\":" + tensor + "}", 0), {"empty"});
  expect_refused(make_file("{\"a\\u001b[0m\":" + tensor + "}", 0), {"\\x1b[0m", "control"});
  expect_refused(make_file("{\"a\xff\":" + tensor + "}", 0), {"UTF-8"});
}

TEST(Safetensors, RefusesWrongMetadataAndValues) {
  expect_refused(make_file(R"({"__metadata__":{"a":1}})", 0), {"__metadata__", "integer 1"});
  expect_refused(make_file(R"({"__metadata__":[]})", 0), {"__metadata__", "an array"});
  expect_refused(make_file(R"({"t":[]})", 0), {"tensor t", "an array"});
  expect_refused(make_file(R"({"t":null})", 0), {"tensor t", "null"});
  expect_refused(make_file("{\"t\":" + std::string(1000, '['), 0), {"deeper"});
}

}  // namespace
}  // namespace walsh
