#include "text/post_processor.h"

#include <gtest/gtest.h>

#include "text_test_util.h"

namespace walsh {
namespace {

using Ids = std::vector<int32_t>;

PostProcessor make(std::string_view json) {
  static const Vocabulary vocabulary(Json{{"<s>", 0}, {"</s>", 1}, {"x", 2}}, "vocab");
  return PostProcessor(parse_json(json, "test"), vocabulary, "post_processor");
}

constexpr const char* kTemplate = R"({"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "B", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
               {"SpecialToken": {"id": "E", "type_id": 0}}],
    "pair": [], "special_tokens": {"B": {"id": "B", "ids": [0, 2], "tokens": ["<s>", "x"]},
                                   "E": {"id": "E", "ids": [1], "tokens": ["</s>"]}}})";

TEST(PostProcessor, SurroundsTheTextWithTheTemplatesTokens) {
  const PostProcessor processor = make(kTemplate);
  EXPECT_EQ(processor.apply({2, 2}, true), (Ids{0, 2, 2, 2, 1}));
  EXPECT_EQ(processor.apply({2, 2}, false), (Ids{2, 2}));
  EXPECT_EQ(processor.apply({}, true), (Ids{0, 2, 1}));
  EXPECT_EQ(processor.leading(), 0);
}

TEST(PostProcessor, ByteLevelAndNullChangeNothing) {
  for (const char* json : {"null", R"({"type": "ByteLevel", "trim_offsets": false})"}) {
    EXPECT_EQ(make(json).apply({2}, true), (Ids{2}));
    EXPECT_EQ(make(json).leading(), std::nullopt);
  }
}

TEST(PostProcessor, SequencesHoldAtMostOneTemplate) {
  const std::string two = std::string(kTemplate) + ", " + kTemplate;
  const auto sequence = [](const std::string& members) {
    return R"({"type": "Sequence", "processors": [)" + members + "]}";
  };
  const std::string byte_level = R"({"type": "ByteLevel"}, )";
  EXPECT_EQ(make(sequence(byte_level + kTemplate)).apply({}, true), (Ids{0, 2, 1}));
  EXPECT_THAT(test::error_of([&] { make(sequence(two)); }), testing::HasSubstr("second"));
}

TEST(PostProcessor, RefusesOthersByName) {
  EXPECT_THAT(test::error_of([] { make(R"({"type": "RobertaProcessing"})"); }),
              testing::HasSubstr("\"RobertaProcessing\" is not supported"));
}

}  // namespace
}  // namespace walsh
