#include "serve/http_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"

namespace walsh {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Parsed {
  int refused = 0;
  std::string reason;
  bool done = false;
  HttpRequest request;
  std::string rest;
};

// Feeds the text in pieces of `piece` bytes.
Parsed parse(const std::string& text, size_t piece, const HttpOptions& limits = {}) {
  HttpParser parser(limits);
  std::string waiting;
  size_t at = 0;
  while (at < text.size() && !parser.done() && !parser.refused()) {
    waiting += text.substr(at, piece);
    at += piece;
    const size_t used = parser.put(waiting);
    EXPECT_LE(used, waiting.size());
    waiting.erase(0, used);
  }
  return {parser.refused(), parser.reason(), parser.done(), parser.request(),
          waiting + text.substr(std::min(at, text.size()))};
}

int status_of(const std::string& text, const HttpOptions& limits = {}) {
  const int whole = parse(text, text.size(), limits).refused;
  EXPECT_EQ(parse(text, 1, limits).refused, whole) << text.substr(0, 99);
  EXPECT_EQ(parse(text, 7, limits).refused, whole) << text.substr(0, 99);
  return whole;
}

TEST(HttpParser, ReadsARequestFromPiecesOfAnySize) {
  const std::string text =
      "POST /v1/chat?a=b%20c&d HTTP/1.1\r\nHost: x\r\nX-Name:  padded \r\nx-name: last\r\n"
      "Content-Length: 5\r\n\r\nhelloGET";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    const Parsed parsed = parse(text, piece);
    ASSERT_TRUE(parsed.done) << piece << " " << parsed.reason;
    EXPECT_EQ(parsed.request.method, "POST");
    EXPECT_EQ(parsed.request.path, "/v1/chat");
    EXPECT_EQ(parsed.request.query, "a=b%20c&d");
    EXPECT_EQ(parsed.request.header("x-name"), "last");
    EXPECT_EQ(parsed.request.header("missing"), "");
    EXPECT_EQ(parsed.request.body, "hello");
    EXPECT_EQ(parsed.rest, "GET");
  }
}

TEST(HttpParser, ReadsChunksAndIgnoresFieldsBehindThem) {
  const std::string text =
      "POST / HTTP/1.1\r\nHost: x\r\nAuthorization: none\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5;ext=\"v\"\r\nhello\r\n1\r\n!\r\n0\r\nAuthorization: forged\r\n\r\nGET";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    const Parsed parsed = parse(text, piece);
    ASSERT_TRUE(parsed.done) << piece << " " << parsed.reason;
    EXPECT_EQ(parsed.request.body, "hello!");
    EXPECT_EQ(parsed.request.header("authorization"), "none");
    EXPECT_EQ(parsed.rest, "GET");
  }
}

TEST(HttpParser, ReadsAnEmptyChunkedBodyByteByByte) {
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            0);
  EXPECT_TRUE(
      parse("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 1).done);
}

TEST(HttpParser, KnowsTheFormsOfATarget) {
  const auto path = [](const std::string& method, const std::string& target) {
    const Parsed parsed = parse(method + " " + target + " HTTP/1.1\r\nHost: x\r\n\r\n", 1000);
    return parsed.refused ? std::to_string(parsed.refused)
                          : parsed.request.path + "|" + parsed.request.query;
  };
  EXPECT_EQ(path("GET", "/a/b?c?d"), "/a/b|c?d");
  EXPECT_EQ(path("GET", "http://host:1/a?b"), "/a|b");
  EXPECT_EQ(path("GET", "HTTP://host"), "/|");
  EXPECT_EQ(path("GET", "https://host?q"), "/|q");
  EXPECT_EQ(path("OPTIONS", "*"), "*|");
  EXPECT_EQ(path("GET", "*"), "400");
  EXPECT_EQ(path("GET", "a/b"), "400");
  EXPECT_EQ(path("GET", "ftp://host/a"), "400");
  EXPECT_EQ(path("CONNECT", "host:443"), "host:443|");
  for (const char* target : {"http://", "http:///a", "http://:80/a", "http://user@host/a"})
    EXPECT_EQ(path("GET", target), "400") << target;
}

// RFC 9112, 3.2.2, says so: what is in front of the server may have checked only one of the two.
TEST(HttpParser, TheHostOfATargetCountsAndNotTheField) {
  const auto host = [](const std::string& target, const std::string& version = "1.1",
                       const std::string& field = "Host: field\r\n") {
    Parsed parsed = parse("GET " + target + " HTTP/" + version + "\r\n" + field + "\r\n", 1000);
    return parsed.refused ? std::to_string(parsed.refused)
                          : std::string(parsed.request.header("host"));
  };
  EXPECT_EQ(host("/a"), "field");
  EXPECT_EQ(host("http://target:81/a"), "target:81");
  EXPECT_EQ(host("HTTPS://target"), "target");
  EXPECT_EQ(host("http://target?q"), "target");
  EXPECT_EQ(host("http://target/a", "1.0", ""), "target");
  EXPECT_EQ(host("http://target/a", "1.1", ""), "400") << "the field has to be there";
}

TEST(HttpParser, SkipsEmptyLinesBeforeARequest) {
  EXPECT_TRUE(parse("\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", 1).done);
  std::string endless;
  for (int i = 0; i < 10000; ++i)
    endless += "\r\n";
  EXPECT_NE(status_of(endless), 0);
}

TEST(HttpParser, RefusesEncodedBodies) {
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Encoding: ";
  EXPECT_EQ(status_of(head + "gzip\r\n\r\na"), 415);
  EXPECT_EQ(status_of(head + "identity\r\n\r\na"), 0);
}

TEST(HttpParser, RefusesBadSyntax) {
  for (const char* text : {
           "GET / HTTP/1.1\r\n\r\n",                           // no Host
           "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",     // two
           "GET / HTTP/2.0\r\nHost: x\r\n\r\n",                // version
           "GET / HTTP/1.1\nHost: x\n\n",                      // line ends
           "GET  / HTTP/1.1\r\nHost: x\r\n\r\n",               // two spaces
           "G@T / HTTP/1.1\r\nHost: x\r\n\r\n",                // method
           "GET /\x01 HTTP/1.1\r\nHost: x\r\n\r\n",            // target
           "GET / HTTP/1.1\r\nHost : x\r\n\r\n",               // space before the colon
           "GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",  // a field in two lines
           "GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",    // field
           "GET / HTTP/1.1\r\nHost: x\r\nA: b\x01\r\n\r\n",    // value
           "GET / HTTP/1.1\r\nHost: x\r\n: b\r\n\r\n",         // empty name
           "\x16\x03\x01\x02\x01\x01\x01\xfc\x03\x03",         // a TLS handshake
       }) {
    EXPECT_EQ(status_of(text), 400) << text;
  }
}

TEST(HttpParser, RefusesWhatCouldBeReadInTwoWays) {
  const auto status = [](const std::string& version, const std::string& fields,
                         const std::string& body) {
    return status_of("POST / HTTP/" + version + "\r\nHost: x\r\n" + fields + "\r\n" + body);
  };
  const std::string chunks = "0\r\n\r\n";
  EXPECT_EQ(status("1.1", "Content-Length: 1\r\nContent-Length: 1\r\n", "a"), 400);
  EXPECT_EQ(status("1.1", "Content-Length: 1\r\nContent-Length: 2\r\n", "ab"), 400);
  EXPECT_EQ(status("1.1", "Content-Length: 1, 1\r\n", "a"), 400);
  EXPECT_EQ(status("1.1", "Content-Length: -1\r\n", ""), 400);
  EXPECT_EQ(status("1.1", "Content-Length: +1\r\n", "a"), 400);
  EXPECT_EQ(status("1.1", "Content-Length: 0x1\r\n", "a"), 400);
  EXPECT_EQ(status("1.1", "Content-Length:\r\n", ""), 400);
  EXPECT_EQ(status("1.1", "Content-Length: 99999999999999999999\r\n", ""), 400);
  EXPECT_EQ(status("1.1", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", chunks), 400);
  EXPECT_EQ(status("1.1", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", chunks), 400);
  EXPECT_EQ(status("1.1", "Transfer-Encoding: gzip\r\nContent-Length: 5\r\n", chunks), 400);
  EXPECT_EQ(status("1.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", chunks),
            400);
  EXPECT_EQ(status("1.0", "Transfer-Encoding: chunked\r\n", chunks), 400);
  EXPECT_EQ(status("1.1", "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n", ""), 400);
}

TEST(HttpParser, RefusesEncodingsAndExpectationsThatItDoesNotKnow) {
  for (const char* encoding : {"gzip", "gzip, chunked", "chunked, gzip", "xchunked", "identity"}) {
    EXPECT_EQ(status_of(std::string("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: ") +
                        encoding + "\r\n\r\n0\r\n\r\n"),
              501)
        << encoding;
  }
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n"
                      "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            501);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: CHUNKED\r\n\r\n0\r\n\r\n"),
            0);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\n\r\n"), 417);
}

TEST(HttpParser, RefusesBadChunks) {
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char* body :
       {"x\r\n.....", "-1\r\n.....", "0x5\r\nhello\r\n0\r\n\r\n", "5\nhello\r\n", "5\r\nhelloworld",
        "11111111111111111\r\n...", "\r\n\r\n\r\n", "0\r\nContent-Length: 5\r\n\r\n"}) {
    EXPECT_EQ(status_of(head + body), 400) << body;
  }
}

TEST(HttpParser, HoldsLimitsToTheByte) {
  HttpOptions limits;
  limits.body_bytes = 10;
  limits.header_bytes = 200;
  limits.header_fields = 5;
  limits.target_bytes = 20;
  const auto post = [](const std::string& fields, const std::string& body) {
    return "POST / HTTP/1.1\r\nHost: x\r\n" + fields + "\r\n" + body;
  };
  const std::string ten(10, 'x');
  EXPECT_EQ(status_of(post("Content-Length: 10\r\n", ten), limits), 0);
  EXPECT_EQ(status_of(post("Content-Length: 11\r\n", ""), limits), 413);
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  EXPECT_EQ(status_of(post(chunked, "4\r\nxxxx\r\n6\r\nxxxxxx\r\n0\r\n\r\n"), limits), 0);
  EXPECT_EQ(status_of(post(chunked, "4\r\nxxxx\r\n7\r\nxxxxxxx\r\n0\r\n\r\n"), limits), 413);
  EXPECT_EQ(status_of(post(chunked, "ffffffffffffffff\r\n....."), limits), 413);

  const std::string target(19, 't'), tail = " HTTP/1.1\r\nHost: x\r\n\r\n";
  EXPECT_EQ(status_of("GET /" + target + tail, limits), 0);
  EXPECT_EQ(status_of("GET /" + target + "t" + tail, limits), 414);
  EXPECT_EQ(status_of("GET /" + std::string(300, 't'), limits), 414);

  EXPECT_EQ(status_of(post("A:1\r\nB:1\r\nC:1\r\nD:1\r\n", ""), limits), 0);
  EXPECT_EQ(status_of(post("A:1\r\nB:1\r\nC:1\r\nD:1\r\nE:1\r\n", ""), limits), 431);
  EXPECT_EQ(status_of(post("A:1\r\nA:1\r\nA:1\r\nA:1\r\nA:1\r\n", ""), limits), 431);

  const size_t rest = 200 - post("A: \r\n", "").size();
  EXPECT_EQ(status_of(post("A: " + std::string(rest, 'a') + "\r\n", ""), limits), 0);
  EXPECT_EQ(status_of(post("A: " + std::string(rest + 1, 'a') + "\r\n", ""), limits), 431);
  EXPECT_EQ(status_of(post("A: " + std::string(10000, 'a'), ""), limits), 431);
}

TEST(HttpParser, BoundsWhatStandsBetweenChunks) {
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(status_of(head + "5;" + std::string(20000, 'e')), 431);
  EXPECT_EQ(status_of(head + "0\r\nA: " + std::string(20000, 'e')), 431);
  // The limit holds to the byte, whether the text comes at once or not.
  const size_t rest = HttpOptions().header_bytes - std::string("0\r\nA: \r\n\r\n").size();
  EXPECT_EQ(status_of(head + "0\r\nA: " + std::string(rest, 'e') + "\r\n\r\n"), 0);
  EXPECT_EQ(status_of(head + "0\r\nA: " + std::string(rest + 1, 'e') + "\r\n\r\n"), 431);
  EXPECT_EQ(status_of(head + "1;" + std::string(20000, 'e') + "\r\na\r\n0\r\n\r\n"), 431);
  std::string fields;
  for (int i = 0; i < 200; ++i)
    fields += "A: b\r\n";
  EXPECT_EQ(status_of(head + "0\r\n" + fields + "\r\n"), 431);
}

TEST(HttpParser, SurvivesRandomChangesOfRequests) {
  const std::vector<std::string> seeds = {
      "GET /a?b HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nT: "
      "u\r\n"
      "\r\n"};
  const std::string alphabet = "\r\n:; ,/?*\t0159afzGH\"\\\x01\x80\xff";
  Random random(20);
  const auto below = [&](size_t n) { return static_cast<size_t>(random.below(n)); };
  int refused = 0, done = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = seeds[below(seeds.size())];
    for (size_t change = below(4); change-- > 0;) {
      const size_t at = below(text.size());
      const char letter = alphabet[below(alphabet.size())];
      if (below(3) == 0) {
        text.erase(at, 1 + below(5));
      } else if (below(2) == 0) {
        text.insert(text.begin() + static_cast<std::ptrdiff_t>(at), 1 + below(3), letter);
      } else {
        text[at] = letter;
      }
      if (text.empty()) text.push_back('G');
    }
    const Parsed whole = parse(text, text.size()), pieces = parse(text, 1 + below(9));
    ASSERT_EQ(whole.refused, pieces.refused) << text;
    ASSERT_EQ(whole.done, pieces.done) << text;
    if (whole.done) {
      ASSERT_EQ(whole.request.body, pieces.request.body) << text;
    }
    refused += whole.refused != 0;
    done += whole.done;
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(done, 1000);
}

TEST(HttpHead, SaysHowTheBodyEnds) {
  const HttpResponse response{200, "text/plain", "12345", {{"X-A", "b"}}};
  EXPECT_EQ(response_head(response, {HttpFraming::Body::length, true}),
            "HTTP/1.1 200 OK\r\nServer: walsh\r\nConnection: keep-alive\r\n"
            "Content-Type: text/plain\r\nContent-Length: 5\r\nX-A: b\r\n\r\n");
  EXPECT_THAT(response_head(response, {HttpFraming::Body::chunked, false}),
              testing::AllOf(HasSubstr("Transfer-Encoding: chunked\r\n"),
                             HasSubstr("Connection: close\r\n"), Not(HasSubstr("Content-Length"))));
  EXPECT_THAT(response_head({204, "text/plain", "", {}}, {}),
              testing::AllOf(Not(HasSubstr("Content-")), HasSubstr(" 204 No Content\r\n")));
  EXPECT_EQ(chunk("0123456789abcdef"), "10\r\n0123456789abcdef\r\n");
  EXPECT_EQ(chunk(""), "0\r\n\r\n");
}

TEST(HttpHead, DoesNotLetFieldsForgeOthers) {
  const HttpResponse response{
      200, "a\r\nX: y", "", {{"A", "b\r\n\r\nc"}, {"content-length", "9"}, {"Connection", "x"}}};
  EXPECT_EQ(response_head(response, {}),
            "HTTP/1.1 200 OK\r\nServer: walsh\r\nConnection: close\r\n"
            "Content-Type: a  X: y\r\nContent-Length: 0\r\nA: b    c\r\n\r\n");
}

}  // namespace
}  // namespace walsh
