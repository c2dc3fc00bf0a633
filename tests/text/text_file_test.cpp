#include "text/text_file.h"

#include <gtest/gtest.h>

#include <string>

#include "temporary_folder.h"
#include "walsh/error.h"

namespace walsh {
namespace {

class TextFile : public testing::Test {
 protected:
  std::string read(const std::string& bytes) const {
    return read_utf8_text(folder_.write("text", bytes));
  }
  void expect_refused(const std::string& bytes, const std::string& reason) const {
    try {
      read(bytes);
      ADD_FAILURE() << reason;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::bad_input);
      EXPECT_EQ(e.where(), folder_.file("text"));
      EXPECT_EQ(e.reason(), reason);
    }
  }

 private:
  test::TemporaryFolder folder_;
};

TEST_F(TextFile, TextsAreReadAsTheyAre) {
  for (const std::string text :
       {"", "a\r\nb\t\x01", "\xEF\xBB\xBFmark", "Za\u017c \U0001FA77 \u200b"})
    EXPECT_EQ(read(text), text);
}

TEST_F(TextFile, ACharacterMayBeCutAtTheEnd) {
  const std::string text = "a \U0001FA77";
  for (size_t size = 0; size <= text.size(); ++size)
    EXPECT_EQ(read(text.substr(0, size)), text.substr(0, size));
}

TEST_F(TextFile, OtherBytesAreRefusedByPlace) {
  expect_refused("caf\xe9 au lait", "is not a text in UTF-8: see byte 3");
  expect_refused(std::string("PK\3\4\0\0", 6), "is not a text in UTF-8: see byte 4, which is 0");
  expect_refused(
      "\xff\xfe"
      "a",
      "is not a text in UTF-8: see byte 0");
  expect_refused("a\xed\xa0\x80", "is not a text in UTF-8: see byte 1");
}

}  // namespace
}  // namespace walsh
