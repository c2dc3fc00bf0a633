#include "io/json.h"

#include "io/wide_integers.h"
#include "io_testing.h"
#include "limited_memory.h"

namespace walsh {
namespace {

using testing::expect_error;

void expect_refused(std::string_view text, const std::vector<std::string>& parts) {
  expect_error([&] { parse_json(text, "config.json"); }, ErrorCode::bad_input, parts);
}

TEST(Json, ParsesEveryKindOfValue) {
  const Json value = parse_json(
      R"( {"a": [1, -2, 3.5, true, false, null, "t\u00e9"], "b": {"c": {}}, "d": []} )", "x");
  const Json expected{{"a", {1, -2, 3.5, true, false, nullptr, "t\xC3\xA9"}},
                      {"b", {{"c", Json::object()}}},
                      {"d", Json::array()}};
  EXPECT_EQ(value, expected);
  EXPECT_EQ(parse_json("7", "x"), Json(7));
}

TEST(Json, KeepsTheOrderOfKeysWhereThatMatters) {
  const std::string text = R"({"b":1,"a":{"z":[{"y":2,"x":3}],"c":null},"aa":4})";
  EXPECT_EQ(parse_ordered_json(text, "x").dump(), text);
  expect_error([] { parse_ordered_json(R"({"b": 1, "a": {"b": 2}, "b": 3})", "x"); },
               ErrorCode::bad_input, {"x", "duplicate key \"b\""});
  JsonLimits limits;
  limits.refuse_duplicate_keys = false;
  EXPECT_EQ(parse_ordered_json(R"({"b": 1, "a": 2, "b": {"c": 3}})", "x", limits).dump(),
            R"({"b":{"c":3},"a":2})");
  expect_error([] { parse_ordered_json(std::string(100, '['), "x"); }, ErrorCode::bad_input,
               {"x", "nested deeper than 64 levels"});
}

// A key is not looked for among those in front of it: that would take minutes.
TEST(Json, ReadsObjectsOfManyKeysInTheirOrder) {
  std::string text = "{";
  for (int i = 0; i < 300'000; ++i)
    text += "\"k" + std::to_string(i) + "\":1,";
  EXPECT_EQ(parse_ordered_json(text + "\"\":0}", "x").size(), 300'001u);
}

TEST(Json, ReportsWhereTheSyntaxErrorIs) {
  expect_refused("{\n  \"a\": 1,\n  \"b\" 2}", {"config.json", "line 3", "column 7"});
  expect_refused("", {"line 1", "column 1"});
  expect_refused("{\"a\": 1} x", {"line 1"});
  expect_refused("[1,]", {"line 1"});
  expect_refused("[NaN]", {"not valid JSON"});
  expect_refused("// no\n1", {"not valid JSON"});
}

TEST(Json, RefusesEveryTruncation) {
  const std::string text = R"({"key": [1.5e3, "\u20ac\ud83d\ude00", {"x": null}], "y": true})";
  ASSERT_NO_THROW(parse_json(text, "x"));
  for (size_t size = 0; size < text.size(); ++size) {
    SCOPED_TRACE(size);
    expect_refused(text.substr(0, size), {"line 1"});
  }
}

TEST(Json, RefusesInvalidUtf8WithoutRepeatingIt) {
  expect_refused("\"\xff\"", {"line 1", "UTF-8"});
  expect_refused("\"\xc0\xaf\"", {"UTF-8"});
  expect_refused("\"\xed\xa0\x80\"", {"UTF-8"});
  expect_refused("\"\\ud800\"", {"line 1"});
  try {
    parse_json("\"ab\xfe\x1b[0m\"", "x");
    FAIL();
  } catch (const Error& e) {
    for (const char c : e.reason())
      EXPECT_TRUE(c >= 0x20 && c < 0x7F) << e.what();
  }
}

TEST(Json, KeepsMessagesShort) {
  try {
    parse_json("\"" + std::string(1 << 20, 'x'), "x");
    FAIL();
  } catch (const Error& e) {
    EXPECT_LT(e.reason().size(), 400u);
  }
}

TEST(Json, BoundsTheDepth) {
  EXPECT_NO_THROW(parse_json(std::string(64, '[') + std::string(64, ']'), "x"));
  expect_refused(std::string(65, '[') + std::string(65, ']'), {"deeper than 64"});
  expect_refused(std::string(2'000'000, '['), {"deeper than 64"});
  std::string objects;
  for (int i = 0; i < 100'000; ++i)
    objects += "{\"a\":";
  expect_refused(objects, {"deeper than 64"});
  expect_error([] { parse_json("[[[1]]]", "x", {2, true}); }, ErrorCode::bad_input, {"than 2"});
}

TEST(Json, RefusesDuplicateKeysUnlessAllowed) {
  expect_refused(R"({"a": 1, "b": {"c": 1, "c": 2}})", {"duplicate key", "\"c\""});
  const Json last = parse_json(R"({"a": 1, "a": {"b": 2}})", "x", {64, false});
  EXPECT_EQ(last, Json::parse(R"({"a": {"b": 2}})"));
  EXPECT_NO_THROW(parse_json(R"([{"a": 1}, {"a": 1}])", "x"));
}

TEST(Json, RefusesNumbersThatDoNotFit) {
  expect_refused("[1e999]", {"1e999"});
}

// Parses more numbers than there is memory for; ends with the status of the error.
[[noreturn]] void parse_without_memory() {
  std::string numbers = "{\"a\": [";
  for (int i = 0; i < 4'000'000; ++i)
    numbers += "1,";
  numbers += "1]}";
  test::limit_memory(rlim_t{80} << 20);
  try {
    parse_json(numbers, "config.json");
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    std::_Exit(exit_status(e.code()));
  }
  std::_Exit(0);
}

TEST(JsonDeathTest, RunningOutOfMemoryIsALimitErrorAndNotTheEndOfTheProcess) {
  if (test::kShadowMemory) GTEST_SKIP() << "the sanitizer's shadow memory needs the address space";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(parse_without_memory(), ::testing::ExitedWithCode(exit_status(ErrorCode::limit)),
              "config.json: not enough memory to parse");
}

TEST(WideIntegers, AreKeptDigitByDigit) {
  const char* text =
      R"({"a":[123456789012345678901234,-18446744073709551616,18446744073709551615],)"
      R"("b":1e30,"c":"\u00e9"})";
  OrderedJson value = parse_exact_json(text, "x");
  EXPECT_EQ(wide_integer(value["a"][0]), "123456789012345678901234");
  EXPECT_EQ(wide_integer(value["a"][2]), std::nullopt);
  EXPECT_EQ(value["b"], 1e30);
  EXPECT_EQ(dump_exact(value),
            R"({"a":[123456789012345678901234,-18446744073709551616,18446744073709551615],)"
            "\"b\":1e+30,\"c\":\"\xC3\xA9\"}");
  EXPECT_EQ(dump_exact(Json(value["a"][0])), "123456789012345678901234");
  EXPECT_EQ(describe_json(Json(value["a"][0])), "an integer of 24 digits");
  round_wide_integers(value);
  EXPECT_EQ(value["a"][0], 123456789012345678901234.0);
  EXPECT_EQ(value["a"][1], -18446744073709551616.0);
}

TEST(JsonGetters, ReturnValuesInRange) {
  const Json object = parse_json(
      R"({"i": -5, "big": 9223372036854775807, "x": 0.5, "b": true, "s": "t", "o": {}, "a": [],
          "n": null})",
      "x");
  EXPECT_EQ(get_int(object, "i", "x"), -5);
  EXPECT_EQ(get_int(object, "big", "x"), INT64_MAX);
  EXPECT_EQ(get_number(object, "x", "x"), 0.5);
  EXPECT_EQ(get_number(object, "i", "x"), -5.0);
  EXPECT_TRUE(get_bool(object, "b", "x"));
  EXPECT_EQ(get_string(object, "s", "x"), "t");
  EXPECT_TRUE(get_object(object, "o", "x").empty());
  EXPECT_TRUE(get_array(object, "a", "x").empty());
  EXPECT_EQ(find_int(object, "absent", "x"), std::nullopt);
  EXPECT_EQ(find_string(object, "n", "x"), std::nullopt);  // null counts as absent
  EXPECT_EQ(find_object(object, "n", "x"), nullptr);
  EXPECT_EQ(find_array(object, "absent", "x"), nullptr);
}

TEST(JsonGetters, NameTheKeyAndBothTypes) {
  const Json object = parse_json(R"({"s": "text", "i": 70, "u": 18446744073709551615, "f": 1.5,
                                     "o": {"deep": 1}, "n": null})",
                                 "x");
  const auto refused = [&](auto&& call, const std::vector<std::string>& parts) {
    expect_error(call, ErrorCode::bad_input, parts);
  };
  refused([&] { get_int(object, "s", "f.json"); }, {"f.json", "\"s\"", "\"text\"", "integer"});
  refused([&] { get_int(object, "f", "f.json"); }, {"\"f\"", "1.5", "integer"});
  refused([&] { get_int(object, "u", "f.json"); }, {"18446744073709551615"});
  refused([&] { get_int(object, "i", "f.json", 1, 64); }, {"70", "from 1 to 64"});
  refused([&] { get_int(object, "missing", "f.json"); }, {"\"missing\" is missing"});
  refused([&] { get_int(object, "n", "f.json"); }, {"\"n\" is missing"});
  refused([&] { get_number(object, "s", "f.json"); }, {"\"s\"", "a number"});
  refused([&] { get_number(object, "f", "f.json", 2.0, 3.0); }, {"1.5", "from 2.0 to 3.0"});
  refused([&] { get_bool(object, "i", "f.json"); }, {"integer 70", "true or false"});
  refused([&] { get_string(object, "o", "f.json"); }, {"an object", "a string"});
  refused([&] { get_object(object, "s", "f.json"); }, {"\"text\"", "an object"});
  refused([&] { get_array(object, "o", "f.json"); }, {"an object", "an array"});
  refused([&] { get_int(Json::array(), "k", "f.json"); }, {"f.json", "an array", "\"k\""});
}

}  // namespace
}  // namespace walsh
