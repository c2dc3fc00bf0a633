#include "serve/model_choice.h"

#include <gtest/gtest.h>

#include "serve/api_error.h"

namespace walsh {
namespace {

ModelChoice choice(const std::string& body, const std::string& path = "/v1/completions",
                   const std::string& query = "") {
  HttpRequest request;
  request.method = "POST";
  request.path = path;
  request.query = query;
  request.body = body;
  return choice_of(request);
}

int refusal(const std::string& body, const std::string& path = "/v1/completions") {
  try {
    choice(body, path);
  } catch (const ApiError& e) {
    return e.status();
  }
  return 200;
}

TEST(ModelChoice, IsTheFieldAtTheTopOfTheBody) {
  EXPECT_EQ(choice(R"({"model": "a/b", "prompt": "x"})").name, "a/b");
  EXPECT_EQ(choice(R"({"messages": [{"model": "no"}], "x": {"model": "no"}, "model": "yes"})").name,
            "yes");
  EXPECT_EQ(choice(R"({"m\u006fdel": "a\u0000b"})").name, std::string("a\0b", 3));
  EXPECT_EQ(choice(R"({"prompt": "x"})").name, "");
  EXPECT_EQ(choice(R"({"model": null})").name, "");
  EXPECT_EQ(choice(R"({"name": "no"})").name, "");
}

TEST(ModelChoice, IsTheQueryWhereTheBodyHasNone) {
  EXPECT_EQ(choice("{}", "/slots/0", "action=save&model=a%2Fb+c").name, "a/b c");
  HttpRequest request;
  request.method = "GET";
  request.path = "/props";
  request.query = "supermodel=x&model=a%zz";
  EXPECT_EQ(choice_of(request).name, "a%zz");
}

TEST(ModelChoice, RefusesWhatIsNoName) {
  EXPECT_EQ(refusal(R"({"model": 3})"), 400);
  EXPECT_EQ(refusal(R"({"model": ["a"]})"), 400);
  EXPECT_EQ(refusal(R"({"model": {"model": "a"}})"), 400);
  EXPECT_EQ(refusal("{\"model"), 400);
  EXPECT_EQ(refusal(""), 400);
  EXPECT_EQ(refusal(std::string(1 << 20, '[')), 400);
}

TEST(ModelChoice, OllamaSaysHowLongAModelIsKept) {
  const auto keep = [](const std::string& value) {
    return choice("{\"keep_alive\": " + value + ", \"name\": \"a\"}", "/api/chat").keep_seconds;
  };
  EXPECT_EQ(choice("{\"keep_alive\": 1, \"name\": \"a\"}", "/api/show").name, "a");
  EXPECT_EQ(keep("\"5m\""), 300);
  EXPECT_EQ(keep("0"), 0);
  EXPECT_EQ(keep("-1"), -1);
  EXPECT_EQ(keep("null"), std::nullopt);
  EXPECT_EQ(refusal(R"({"keep_alive": "soon"})", "/api/chat"), 400);
  EXPECT_EQ(refusal(R"({"keep_alive": [1]})", "/api/chat"), 400);
  EXPECT_EQ(refusal(R"({"keep_alive": 1e300})", "/api/chat"), 400);
  EXPECT_EQ(refusal(R"({"keep_alive": "1000000000000s"})", "/api/chat"), 400);
  EXPECT_EQ(choice(R"({"keep_alive": "soon", "model": "a"})").keep_seconds, std::nullopt);
}

TEST(ModelChoice, DurationsAreThoseOfOllama) {
  EXPECT_EQ(parse_duration("300"), 300);
  EXPECT_EQ(parse_duration("1h30m"), 5400);
  EXPECT_EQ(parse_duration("1.5s"), 1.5);
  EXPECT_EQ(parse_duration("500ms"), 0.5);
  EXPECT_EQ(parse_duration("-5m"), -1);
  EXPECT_EQ(parse_duration("0"), 0);
  for (const char* bad : {"", "-", "m", "5x", "5m3", "1e999", "nan", "inf", "5 m", "--1"})
    EXPECT_EQ(parse_duration(bad), std::nullopt) << bad;
}

}  // namespace
}  // namespace walsh
