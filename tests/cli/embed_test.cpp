#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace walsh {
namespace {

using testing::HasSubstr;

class EmbedCommand : public CommandTest {
 protected:
  // Returns the lines of a command that succeeds.
  static std::vector<nlohmann::json> lines(const CommandResult& r) {
    EXPECT_EQ(r.status, 0) << r.err;
    std::vector<nlohmann::json> all;
    for (size_t begin = 0, end; (end = r.out.find('\n', begin)) != std::string::npos;
         begin = end + 1)
      all.push_back(nlohmann::json::parse(r.out.substr(begin, end - begin)));
    return all;
  }
};

TEST_F(EmbedCommand, TextsAndLinesGiveTheSame) {
  const auto texts = lines(walsh({"embed", model(), "The river", "Bread", "--dimensions", "6"}));
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[1]["index"], 1);
  EXPECT_EQ(texts[1]["embedding"].size(), 6u);
  spill(file("lines"), "The river\nBread\n");
  EXPECT_EQ(lines(walsh({"embed", model(), "--dimensions", "6"}, "", "< " + file("lines"))), texts);
  EXPECT_NE(lines(walsh({"embed", model(), "The river", "--dimensions", "6", "--pooling",
                         "mean"}))[0]["embedding"],
            texts[0]["embedding"]);
}

TEST_F(EmbedCommand, TextsThatCannotBeReadAreNamed) {
  const CommandResult empty = walsh({"embed", model(), "a", ""});
  EXPECT_EQ(empty.status, 2);
  EXPECT_THAT(empty.err, HasSubstr("text 1: it is empty"));
  const CommandResult long_one =
      walsh({"embed", model(), "-c", "4", "The city of London is large"});
  EXPECT_EQ(long_one.status, 2);
  EXPECT_THAT(long_one.err, HasSubstr("but the context has room for 4"));
  EXPECT_EQ(walsh({"embed", model(), "a", "--pooling", "max"}).status, 2);
}

}  // namespace
}  // namespace walsh
