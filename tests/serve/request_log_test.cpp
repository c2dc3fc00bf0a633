#include "serve/request_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>

#include "io/error_output.h"
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

TEST(RequestLog, DoesNotWaitForEverForSomebodyToReadItsLines) {
  std::promise<void> reader;
  const std::shared_future<void> reads = reader.get_future().share();
  std::promise<void> written;
  {
    RequestLog log(
        LogFormat::text,
        [reads, &written](const std::string&) {
          reads.wait();
          written.set_value();
        },
        std::chrono::milliseconds(1));
    log.add(record());
  }
  reader.set_value();
  written.get_future().wait();
}

// Standard error becomes one end of a pair of sockets while the test runs.
TEST(ErrorOutput, GivesUpWhereNobodyReads) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const int kept = ::dup(STDERR_FILENO);
  ::dup2(ends[0], STDERR_FILENO);
  const bool first = write_error_output("line\n", std::chrono::seconds(10));
  bool more = true;  // until the buffer of the socket is full
  for (int i = 0; i < 1'000'000 && more; ++i)
    more = write_error_output(std::string(4096, 'x'), std::chrono::milliseconds(1));
  ::dup2(kept, STDERR_FILENO);
  std::string text(5, ' ');
  EXPECT_EQ(::read(ends[1], text.data(), text.size()), 5);
  for (const int one : {ends[0], ends[1], kept})
    ::close(one);
  EXPECT_TRUE(first);
  EXPECT_EQ(text, "line\n");
  EXPECT_FALSE(more);
}

}  // namespace
}  // namespace walsh
