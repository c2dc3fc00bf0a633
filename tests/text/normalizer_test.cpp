#include "text/normalizer.h"

#include <gtest/gtest.h>

#include "text_test_util.h"

namespace walsh {
namespace {

Normalizer make(std::string_view json) {
  return Normalizer(parse_json(json, "test"), "normalizer");
}

TEST(Normalizer, NullChangesNothing) {
  EXPECT_EQ(make("null").apply(" A\u0301 ", test::plenty()), " A\u0301 ");
}

TEST(Normalizer, PrependSkipsTheEmptyText) {
  const Normalizer prepend = make(R"({"type": "Prepend", "prepend": "\u2581"})");
  EXPECT_EQ(prepend.apply("a", test::plenty()),
            "\u2581"
            "a");
  EXPECT_EQ(prepend.apply("", test::plenty()), "");
}

TEST(Normalizer, StripRemovesUnicodeWhiteSpaceOnTheSidesAskedFor) {
  const std::string text = "\u3000 \tx y\u00A0\n";
  EXPECT_EQ(make(R"({"type": "Strip", "strip_left": true, "strip_right": true})")
                .apply(text, test::plenty()),
            "x y");
  EXPECT_EQ(make(R"({"type": "Strip", "strip_left": true, "strip_right": false})")
                .apply(text, test::plenty()),
            "x y\u00A0\n");
  EXPECT_EQ(make(R"({"type": "Strip", "strip_left": false, "strip_right": true})")
                .apply(text, test::plenty()),
            "\u3000 \tx y");
  EXPECT_EQ(make(R"({"type": "Strip", "strip_left": true, "strip_right": true})")
                .apply(" \n ", test::plenty()),
            "");
}

TEST(Normalizer, SequencesRunInOrderAndMayBeNested) {
  const Normalizer sequence = make(R"({"type": "Sequence", "normalizers": [
      {"type": "Lowercase"},
      {"type": "Sequence", "normalizers": [
        {"type": "Replace", "pattern": {"String": "a"}, "content": "bb"},
        {"type": "Replace", "pattern": {"Regex": "b{2}"}, "content": "c"}]},
      {"type": "NFC"}]})");
  EXPECT_EQ(sequence.apply("ABE\u0301", test::plenty()), "cb\u00E9");
}

TEST(Normalizer, RefusesOthersByName) {
  EXPECT_EQ(test::error_of([] { make(R"({"type": "BertNormalizer"})"); }),
            "normalizer: the normalizer \"BertNormalizer\" is not supported");
  EXPECT_EQ(test::error_of([] { make(R"({"type": "NFC", "form": 1})"); }),
            "normalizer: key \"form\" is not known");
}

}  // namespace
}  // namespace walsh
