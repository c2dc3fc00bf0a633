#include "text/pattern.h"

#include <gtest/gtest.h>

#include "text_test_util.h"

namespace walsh {
namespace {

using Strings = std::vector<std::string>;

Strings split(std::string_view behavior, bool inverted = false,
              std::string_view text = "the-final--countdown") {
  std::vector<Span> matches;
  Pattern::literal("-", "f").find_all(text, test::plenty(), matches);
  Strings out;
  for (const Span& span :
       split_pieces(text.size(), matches, read_split_behavior(behavior, "f"), inverted)) {
    out.emplace_back(text.substr(span.begin, span.end - span.begin));
  }
  return out;
}

TEST(SplitPieces, FollowTheFiveBehaviors) {
  EXPECT_EQ(split("Isolated"), (Strings{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(split("Removed"), (Strings{"the", "final", "countdown"}));
  EXPECT_EQ(split("Contiguous"), (Strings{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(split("MergedWithPrevious"), (Strings{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(split("MergedWithNext"), (Strings{"the", "-final", "-", "-countdown"}));
}

TEST(SplitPieces, InvertedSwapsMatchesAndText) {
  EXPECT_EQ(split("Removed", true), (Strings{"-", "-", "-"}));
  EXPECT_EQ(split("MergedWithPrevious", true), (Strings{"the", "-final", "-", "-countdown"}));
}

TEST(SplitPieces, CoverTextsThatBeginOrEndWithAMatch) {
  EXPECT_EQ(split("MergedWithPrevious", false, "-a-"), (Strings{"-", "a-"}));
  EXPECT_EQ(split("MergedWithNext", false, "-a-"), (Strings{"-a", "-"}));
  EXPECT_EQ(split("Contiguous", false, "--"), (Strings{"--"}));
  EXPECT_EQ(split("Isolated", false, ""), Strings{});
}

TEST(SplitPieces, RefusesAnUnknownBehavior) {
  EXPECT_EQ(test::error_of([] { read_split_behavior("isolated", "f"); }),
            "f: the behavior \"isolated\" is not known");
}

TEST(Pattern, ReplacesLiterallyAndFromTheLeft) {
  EXPECT_EQ(Pattern::literal("aa", "f").replace_all("aaaaa.aa", "$0", 99, test::plenty()),
            "$0$0a.$0");
  EXPECT_EQ(Pattern::regex("a+", "f").replace_all("caat", "\\0", 99, test::plenty()), "c\\0t");
  EXPECT_EQ(Pattern::literal(".", "f").replace_all("a.b", "", 2, test::plenty()), "ab");
  EXPECT_NE(test::error_of([] { Pattern::literal("", "f"); }), "");
}

TEST(Pattern, StopsBeforeAReplacementGrowsTooLarge) {
  const Pattern pattern = Pattern::literal("a", "f");
  EXPECT_EQ(pattern.replace_all("aa", "xyz", 6, test::plenty()), "xyzxyz");
  EXPECT_EQ(test::error_of([&] { pattern.replace_all("aa", "xyz", 5, test::plenty()); },
                           ErrorCode::limit),
            "replacement: a text of 2 bytes would grow to 6");
}

}  // namespace
}  // namespace walsh
