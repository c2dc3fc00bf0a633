// Tests tokens declared in tokenizer_config.json against transformers
// (tools/make_declared_cases.py).
#include "text/declared_tokens.h"

#include <gtest/gtest.h>

#include <set>

#include "io/legacy_tokens.h"
#include "text_test_util.h"

namespace walsh {
namespace {

using Ids = std::vector<int32_t>;

// Transformers 5 decides, and transformers 4 where 5 refuses.
TEST(DeclaredTokens, EveryConfigurationGivesTheIdsOfTransformers) {
  const std::string path = test::data_path("declared_tokens.json");
  const OrderedJson file = parse_ordered_json(test::read_text(path), "cases");
  const std::string text = file.at("text");
  std::set<Ids> different;
  for (const OrderedJson& c : file.at("cases")) {
    OrderedJson config = c.at("config");
    const auto file_of = [&](const char* name) {
      const std::string json = config.contains(name) ? config[name].dump() : "";
      config.erase(name);
      return json;
    };
    const std::string own = file.at("tokenizer").dump();
    const LegacyTokenFiles files = {file_of("special_tokens_map.json"),
                                    file_of("added_tokens.json")};
    const Tokenizer tokenizer =
        Tokenizer::from_json(own, with_legacy_tokens(config.dump(), own, files, "f"), "t.json");
    const OrderedJson& expected = c.at(c.at("5").is_null() ? "4" : "5");
    const Ids ids = tokenizer.encode(text, false);
    EXPECT_EQ(ids, expected.at("ids").get<Ids>()) << c.dump();
    // The library puts spaces between tokens where there is no decoder.
    std::string plain = expected.at("plain"), ours = tokenizer.decode(ids, true);
    std::erase(plain, ' ');
    std::erase(ours, ' ');
    EXPECT_EQ(ours, plain) << c.dump();
    different.insert(ids);
  }
  EXPECT_GT(different.size(), 8u);
}

TEST(DeclaredTokens, RefusesWhatIsNoDeclaration) {
  const auto error = [](const char* config) {
    return test::error_of(
        [&] { with_declared_tokens(Json::array(), parse_ordered_json(config, "c"), "config"); });
  };
  using testing::HasSubstr;
  EXPECT_THAT(error(R"({"pad_token": 3})"), HasSubstr("config.pad_token"));
  EXPECT_THAT(error(R"({"pad_token": {"lstrip": true}})"), HasSubstr("\"content\" is missing"));
  EXPECT_THAT(error(R"({"pad_token": {"content": "x", "odd": 1}})"), HasSubstr("odd"));
  EXPECT_THAT(error(R"({"additional_special_tokens": "x"})"), HasSubstr("an array is expected"));
  EXPECT_THAT(error(R"({"added_tokens_decoder": ["x"]})"), HasSubstr("an object is expected"));
  EXPECT_THAT(error(R"({"added_tokens_decoder": {"x": {"content": "x"}}})"),
              HasSubstr("an id is expected"));
  EXPECT_THAT(error(R"({"added_tokens_decoder": {"1": {"content": "x", "special": 1}}})"),
              HasSubstr("special"));
}

}  // namespace
}  // namespace walsh
