#include "serve/request_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/json.h"

namespace walsh {
namespace {

using testing::HasSubstr;
using testing::Not;

RequestRecord record() {
  HttpRequest request;
  request.method = "POST";
  request.path = "/v1/completions\n";
  request.query = "key=secret";
  request.peer = "127.0.0.1";
  RequestRecord result(request);
  result.status = 200;
  result.whole = true;
  result.add({.prompt_tokens = 7, .cached_tokens = 3, .tokens = 5});
  return result;
}

TEST(RequestLog, HasALineForEachRequest) {
  std::string text;
  {
    RequestLog log(LogFormat::text, [&](const std::string& lines) { text += lines; });
    for (int i = 0; i < 3; ++i)
      log.add(record());
  }
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(text, HasSubstr(" 127.0.0.1 POST /v1/completions\\x0a 200 "));
  EXPECT_THAT(text, HasSubstr("7 tokens read (3 cached), 5 written\n"));
  EXPECT_THAT(text, Not(HasSubstr("secret")));
}

TEST(RequestLog, MayBeJsonOrNothing) {
  const Json line = parse_json(record().line(LogFormat::json, 0.5), "line");
  EXPECT_EQ(line["path"], "/v1/completions\\x0a");
  EXPECT_EQ(line["prompt_tokens"], 7);
  EXPECT_EQ(line["seconds"], 0.5);
  RequestLog off(LogFormat::off, [](const std::string&) { ADD_FAILURE(); });
  off.add(record());
}

TEST(RequestLog, TellsOfPromptsThatLackTheBos) {
  RequestRecord one = record();
  EXPECT_FALSE(parse_json(one.line(LogFormat::json, 1), "line").contains("lacks_bos"));
  one.lacks_bos = true;
  EXPECT_THAT(one.line(LogFormat::text, 1), testing::EndsWith(" lacks the model's BOS"));
  EXPECT_EQ(parse_json(one.line(LogFormat::json, 1), "line")["lacks_bos"], true);
}

TEST(RequestLog, TellsOfAnswersThatWereBrokenOff) {
  RequestRecord one = record();
  one.whole = false;
  EXPECT_THAT(one.line(LogFormat::text, 1), testing::EndsWith(", broken off"));
}

}  // namespace
}  // namespace walsh
