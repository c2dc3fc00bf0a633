#include "serve/http.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <optional>

#include "base/random.h"
#include "serve/running_server.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using test::any_port;
using test::Client;
using test::ClientResponse;
using test::Desk;
using test::eventually;
using test::RunningServer;
using testing::HasSubstr;
using testing::StartsWith;

std::string get(const std::string& target, const std::string& fields = "") {
  return "GET " + target + " HTTP/1.1\r\nHost: x\r\n" + fields + "\r\n";
}

std::string post(const std::string& target, const std::string& body) {
  return "POST " + target +
         " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         body;
}

TEST(HttpServer, AnswersRequestsOnOneConnection) {
  Desk desk;
  RunningServer server(any_port(), desk.handler());
  Client client(server.port());
  for (int i = 0; i < 3; ++i) {
    const ClientResponse response = client.ask(post("/a?b", "body"));
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "POST /a?b body");
    EXPECT_EQ(response.headers.at("Connection"), "keep-alive");
    EXPECT_EQ(response.headers.at("Server"), "walsh");
    EXPECT_EQ(response.headers.at("Content-Type"), "text/plain");
  }
  EXPECT_EQ(server->open_connections(), 1);
  EXPECT_EQ(client.ask(get("/", "Connection: close\r\n")).headers.at("Connection"), "close");
  EXPECT_TRUE(client.ended());
  client.close();
  EXPECT_TRUE(server.idle());
}

TEST(HttpServer, PassesThePeerAndHeaderFields) {
  RunningServer server(any_port(), [](const HttpRequest& request, const auto& reply) {
    reply->send({299,
                 "text/x",
                 request.peer + std::string(request.header("x-name")),
                 {{"X-Answer", "yes"}}});
  });
  const ClientResponse response = Client(server.port()).ask(get("/", "X-Name: value\r\n"));
  EXPECT_EQ(response.status, 299);
  EXPECT_EQ(response.body, "127.0.0.1value");
  EXPECT_EQ(response.headers.at("X-Answer"), "yes");
}

TEST(HttpServer, ClosesAfterHttp10UnlessAskedNotTo) {
  Desk desk;
  RunningServer server(any_port(), desk.handler());
  Client closes(server.port()), keeps(server.port());
  EXPECT_EQ(closes.ask("GET /a HTTP/1.0\r\n\r\n").body, "GET /a? ");
  EXPECT_TRUE(closes.ended());
  for (int i = 0; i < 2; ++i) {
    const ClientResponse response = keeps.ask("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_EQ(response.headers.at("Connection"), "keep-alive");
  }
}

TEST(HttpServer, AnswersHeadWithoutABody) {
  Desk desk;
  RunningServer server(any_port(), desk.handler());
  Client client(server.port());
  ASSERT_TRUE(client.send("HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n"));
  const ClientResponse response = client.response(false);
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("Content-Length"), "9");
  EXPECT_EQ(client.ask(get("/b")).body, "GET /b? ");
}

TEST(HttpServer, AsksForABodyThatWaitsForPermission) {
  HttpOptions options = any_port();
  options.body_bytes = 100;
  Desk desk;
  RunningServer server(options, desk.handler());
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: ";
  Client client(server.port());
  EXPECT_EQ(client.ask(head + "4\r\n\r\n").status, 100);
  EXPECT_EQ(client.ask("body").body, "POST /? body");
  // No such answer is sent for a body that is on its way, or is refused.
  EXPECT_EQ(client.ask(head + "4\r\n\r\nbody").body, "POST /? body");
  EXPECT_EQ(client.ask(head + "101\r\n\r\n").status, 413);
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  Desk desk;
  RunningServer server(any_port(), desk.handler());
  Client client(server.port());
  std::string requests = get("/wait");
  for (int i = 0; i < 20; ++i)
    requests += post(fmt::format("/{}", i), "body");
  ASSERT_TRUE(client.send(requests));
  const auto replies = desk.take(1);
  EXPECT_FALSE(client.readable(30));
  EXPECT_EQ(desk.answered, 1);  // that of the fixture
  replies[0]->send({200, "text/plain", "first", {}});
  EXPECT_EQ(client.response().body, "first");
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(client.response().body, "POST /" + std::to_string(i) + "? body");
  }
}

TEST(HttpServer, RefusesWithTheStatusOfTheReasonAndCloses) {
  HttpOptions options = any_port();
  options.body_bytes = 1000;
  Desk desk;
  RunningServer server(options, desk.handler());
  const std::string long_field = "A: " + std::string(20000, 'a') + "\r\n";
  std::string fields;
  for (int i = 0; i < 100; ++i)
    fields += "A: b\r\n";
  const std::string chunked = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::vector<std::pair<std::string, int>> cases = {
      {"garbage\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
       400},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
      {chunked + "zz\r\n....", 400},
      {post("/", std::string(1001, 'x')), 413},
      {chunked + "3e9\r\n" + std::string(1001, 'x') + "\r\n0\r\n\r\n", 413},
      {get("/" + std::string(5000, 't')), 414},
      {get("/", long_field), 431},
      {get("/", fields), 431},
  };
  for (const auto& [request, status] : cases) {
    Client client(server.port());
    const ClientResponse response = client.ask(request);
    EXPECT_EQ(response.status, status) << request.substr(0, 100);
    EXPECT_EQ(response.headers.at("Connection"), "close");
    EXPECT_THAT(response.body, StartsWith(std::to_string(status) + " "));
    EXPECT_TRUE(client.ended());
  }
  EXPECT_EQ(desk.answered, 1);
}

TEST(HttpServer, RefusalsKnowWhatWasAskedFor) {
  HttpOptions options = any_port();
  options.body_bytes = 10;
  RunningServer server(options, [](const HttpRequest&, auto) {});
  EXPECT_EQ(Client(server.port()).ask(post("/a", "01234567890")).headers["X-Path"], "/a");
  EXPECT_EQ(Client(server.port()).ask(get("/forgotten")).headers["X-Path"], "/forgotten");
  EXPECT_EQ(Client(server.port()).ask("GET /a\r\n\r\n").headers["X-Peer"], "127.0.0.1");
}

TEST(HttpServer, LetsAClientThatStillSendsReadItsRefusal) {
  HttpOptions options = any_port();
  options.body_bytes = 1000;
  Desk desk;
  RunningServer server(options, desk.handler());
  for (int i = 0; i < 5; ++i) {
    // There is much more than fits into the buffers between the two, and all of it comes before the
    // answer is read.
    Client client(server.port());
    EXPECT_EQ(client.ask(post("/", std::string(16 << 20, 'x'))).status, 413);
  }
}

TEST(HttpServer, AnswersAClientThatHasShutDownItsSendingSide) {
  RunningServer server(any_port(), [](const HttpRequest&, std::shared_ptr<HttpReply> reply) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    reply->send({200, "text/plain", "late", {}});
  });
  Client client(server.port());
  ASSERT_TRUE(client.send(get("/") + get("/")));
  client.shut_down_sending();
  EXPECT_EQ(client.response().body, "late");
  EXPECT_EQ(client.response().body, "late");
  EXPECT_TRUE(client.ended());
}

TEST(HttpServer, Answers500ForAHandlerThatFailsOrForgets) {
  RunningServer server(any_port(), [](const HttpRequest& request, auto) {
    if (request.path == "/error") throw Error(ErrorCode::limit, "cache", "is full");
    if (request.path == "/other") throw 1;
  });
  Client client(server.port());
  ClientResponse response = client.ask(get("/error"));
  EXPECT_EQ(response.status, 500);
  EXPECT_EQ(response.body, "500 cache: is full");
  EXPECT_EQ(client.ask(get("/other")).body, "500 internal error");
  EXPECT_EQ(client.ask(get("/nothing")).body, "500 the request was not answered");
}

TEST(HttpServer, SomeAnswersDoNotWaitForHandlers) {
  HttpOptions options = any_port();
  options.threads = 1;
  std::promise<void> end;
  const auto ended = end.get_future().share();
  std::atomic<bool> busy = false;
  RunningServer server(
      options,
      [&](const HttpRequest& request, const auto& reply) {
        if (request.path == "/slow") {
          busy = true;
          ended.wait();
        }
        reply->send({200, "text/plain", request.path, {}});
      },
      [](const HttpRequest& request) {
        return request.path == "/health" ? HttpTurn::at_once : HttpTurn::handlers;
      });
  Client slow(server.port());
  ASSERT_TRUE(slow.send(get("/slow")));
  ASSERT_TRUE(eventually([&] { return busy.load(); }));
  EXPECT_EQ(Client(server.port()).ask(get("/health")).body, "/health");
  end.set_value();
  EXPECT_EQ(slow.response().body, "/slow");
}

TEST(HttpServer, TakesTheFirstAnswerOnly) {
  RunningServer server(any_port(), [](const HttpRequest&, const auto& reply) {
    reply->send({200, "text/plain", "first", {}});
    reply->send({201, "text/plain", "second", {}});
    reply->start_events({});
    reply->event("data: no\n\n");
    reply->end_events();
    throw Error(ErrorCode::io, "late", "failure");
  });
  Client client(server.port());
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(client.ask(get("/")).body, "first");
}

TEST(HttpServer, SurvivesErrorBodiesThatThrow) {
  HttpOptions options = any_port();
  HttpServer server(
      options, [](const HttpRequest&, const auto&) {},
      [](int, const std::string&, const HttpRequest&) -> HttpResponse { throw 1; });
  std::thread thread([&] { server.run(); });
  Client client(server.port());
  EXPECT_EQ(client.ask(get("/")).status, 500);
  EXPECT_EQ(client.ask("bad\r\n\r\n").status, 400);
  server.shut_down(0);
  thread.join();
}

TEST(HttpServer, TurnsConnectionsBeyondTheLimitAway) {
  HttpOptions options = any_port();
  options.connections = 2;
  Desk desk;
  RunningServer server(options, desk.handler());
  Client first(server.port()), second(server.port());
  EXPECT_EQ(first.ask(get("/")).status, 200);
  EXPECT_EQ(second.ask(get("/")).status, 200);
  Client third(server.port());
  const ClientResponse refused = third.ask(get("/"));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("Connection"), "close");
  EXPECT_TRUE(third.ended());
  third.close();
  EXPECT_TRUE(eventually([&] { return server->open_connections() == 2; }));
  first.close();
  ASSERT_TRUE(eventually([&] { return server->open_connections() == 1; }));
  EXPECT_EQ(Client(server.port()).ask(get("/")).status, 200);
  EXPECT_EQ(second.ask(get("/")).status, 200);
}

// Clients that send nothing or are not admitted keep nobody out: the oldest of them gives way.
TEST(HttpServer, StrangersGiveWayToWhoComesLater) {
  HttpOptions options = any_port();
  options.connections = 4;
  Desk desk;
  RunningServer server(options, desk.handler(), nullptr, [](HttpRequest& request) {
    HttpAdmission admission;
    admission.known = request.header("key") == "right";
    if (request.path == "/secret" && !admission.known) admission.refusal = {401, "", "no", {}};
    return admission;
  });
  Client first(server.port());
  EXPECT_EQ(first.ask(get("/secret", "Key: right\r\n")).status, 200);
  std::vector<Client> strangers;
  for (int i = 0; i < 40; ++i) {
    strangers.emplace_back(server.port());
    if (i % 3 == 1) strangers.back().send("GET / HTTP/1.1\r\nHost: x\r\n");
    if (i % 3 == 2) strangers.back().send(get("/"));
  }
  EXPECT_EQ(Client(server.port()).ask(get("/secret", "Key: right\r\n")).status, 200);
  EXPECT_EQ(first.ask(get("/secret", "Key: right\r\n")).status, 200) << "who is known stays";
  EXPECT_LE(server->open_connections(), 8);
  EXPECT_TRUE(strangers.front().ended());
}

// A client that is not admitted is sent no permission for a body, and its body is not read.
TEST(HttpServer, WhoMayNotAskIsToldBeforeTheBody) {
  Desk desk;
  RunningServer server(any_port(), desk.handler(), nullptr, [](HttpRequest& request) {
    HttpAdmission admission;
    if (request.path == "/secret") admission.refusal = {401, "text/plain", "no", {{"X-A", "b"}}};
    return admission;
  });
  for (const char* field : {"Content-Length: 8000000\r\n", "Transfer-Encoding: chunked\r\n",
                            "Content-Length: 8000000\r\nExpect: 100-continue\r\n"}) {
    Client client(server.port());
    const ClientResponse refused =
        client.ask(fmt::format("POST /secret HTTP/1.1\r\nHost: x\r\n{}\r\n", field));
    EXPECT_EQ(refused.status, 401) << field;
    EXPECT_EQ(refused.headers.at("X-A"), "b");
    EXPECT_EQ(refused.headers.at("Connection"), "close");
    EXPECT_TRUE(client.ended());
  }
  Client client(server.port());
  EXPECT_EQ(client.ask(post("/secret", "short")).status, 401);
  EXPECT_EQ(client.ask(post("/a", "short")).status, 200) << "nothing is left to be read";
}

TEST(HttpServer, WaitsWhileTheSystemHasNoDescriptors) {
  Desk desk;
  RunningServer server(any_port(), desk.handler());
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  // One descriptor is left, for the client.
  const int next = dup(0);
  ASSERT_GE(next, 0);
  close(next);
  const rlimit none_left{static_cast<rlim_t>(next) + 1, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none_left), 0);
  Client client(server.port());
  client.send(get("/"));
  EXPECT_FALSE(client.readable(120));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(client.response().status, 200);
}

TEST(HttpServer, SaysWhichAddressCannotBeHad) {
  Desk desk;
  RunningServer server(any_port(), desk.handler());
  const auto refusal = [&](const std::string& host, uint16_t port) {
    HttpOptions options;
    options.host = host;
    options.port = port;
    try {
      HttpServer(options, desk.handler(), test::error_text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::io);
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(refusal("127.0.0.1", server.port()),
              HasSubstr("127.0.0.1:" + std::to_string(server.port()) + ": cannot listen: "));
  EXPECT_THAT(refusal("192.0.2.1", 0), StartsWith("192.0.2.1:0: cannot listen: "));
  EXPECT_THAT(refusal("no/host", 0), StartsWith("no/host:0: cannot listen: "));
}

TEST(HttpServer, RefusesOptionsThatMakeNoSense) {
  const auto refused = [](auto change) {
    HttpOptions options = any_port();
    change(options);
    try {
      HttpServer(
          options, [](const HttpRequest&, const auto&) {}, test::error_text);
    } catch (const Error& error) {
      return error.code() == ErrorCode::usage;
    }
    return false;
  };
  EXPECT_TRUE(refused([](HttpOptions& options) { options.threads = 0; }));
  EXPECT_TRUE(refused([](HttpOptions& options) { options.connections = -1; }));
  EXPECT_TRUE(refused([](HttpOptions& options) { options.ping_seconds = 0; }));
  EXPECT_TRUE(refused([](HttpOptions& options) { options.body_seconds = 0.0 / 0.0; }));
  EXPECT_TRUE(refused([](HttpOptions& options) { options.host = ""; }));
  EXPECT_FALSE(refused([](HttpOptions&) {}));
}

TEST(HttpServer, BodiesTogetherAreBounded) {
  HttpOptions options = any_port();
  options.held_bytes = 170'000;
  Desk desk;
  RunningServer server(options, desk.handler());
  const std::string whole = post("/a", std::string(100'000, 'a'));
  const std::string more = post("/b", std::string(90'000, 'b'));
  std::optional<Client> slow;
  EXPECT_TRUE(eventually([&] {  // whoever is read last is refused
    slow.emplace(server.port());
    slow->send(whole.substr(0, 90'000));
    return Client(server.port()).ask(more).status == 503;
  }));
  EXPECT_EQ(Client(server.port()).ask(post("/c", std::string(60'000, 'c'))).status, 200)
      << "short ones go on";
  slow->send(whole.substr(90'000));
  EXPECT_EQ(slow->response().status, 200);
  EXPECT_TRUE(eventually([&] { return Client(server.port()).ask(more).status == 200; }));
}

TEST(HttpServer, RequestsThatTakeLongHoldUpEachOtherOnly) {
  HttpOptions options = any_port();
  options.threads = 1;
  std::promise<void> go;
  const auto gone_on = go.get_future().share();
  std::atomic<int> begun{0};
  RunningServer server(
      options,
      [&](const HttpRequest& request, const auto& reply) {
        if (request.path == "/long") {
          ++begun;
          gone_on.wait();
        }
        reply->send({});
      },
      [](const HttpRequest& request) {
        if (request.path == "/long") return HttpTurn::one_by_one;
        if (request.path == "/body") return HttpTurn::long_bodies;
        return request.path == "/now" ? HttpTurn::at_once : HttpTurn::handlers;
      });
  Client first(server.port()), second(server.port()), other(server.port());
  first.send(get("/long"));
  second.send(get("/long"));
  EXPECT_TRUE(eventually([&] { return begun == 1; }));
  EXPECT_EQ(other.ask(get("/now")).status, 200);
  EXPECT_EQ(other.ask(get("/other")).status, 200);
  EXPECT_EQ(other.ask(get("/body")).status, 200);
  EXPECT_EQ(begun, 1);
  go.set_value();
  EXPECT_EQ(first.response().status, 200);
  EXPECT_EQ(second.response().status, 200);
}

TEST(HttpServer, ServesManyClientsAtOnce) {
  Desk desk;
  RunningServer server(any_port(), desk.handler());
  const auto work = [&](int thread) {
    std::vector<Client> clients;
    for (int i = 0; i < 50; ++i)
      clients.emplace_back(server.port());
    for (int round = 0; round < 5; ++round) {
      for (int i = 0; i < 50; ++i) {
        EXPECT_TRUE(clients[i].send(post(fmt::format("/{}", thread), std::to_string(i))));
      }
      for (int i = 0; i < 50; ++i) {
        EXPECT_EQ(clients[i].response().body,
                  "POST /" + std::to_string(thread) + "? " + std::to_string(i));
      }
    }
  };
  std::thread other(work, 1);
  work(2);
  other.join();
  EXPECT_EQ(desk.answered, 501);
  EXPECT_TRUE(server.idle());
}

TEST(HttpServer, SurvivesGarbage) {
  Desk desk;
  RunningServer server(any_port(), desk.handler());
  Random random(11);
  const std::string valid =
      "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
  for (int round = 0; round < 300; ++round) {
    std::string text = round % 3 == 0 ? "" : valid;
    for (uint64_t i = 1 + random.below(40); i-- > 0;) {
      const char letter = static_cast<char>(random.below(256));
      if (round % 3 == 0) {
        text += letter;
      } else if (i < 3) {
        text[random.below(text.size())] = letter;
      }
    }
    Client client(server.port());
    client.send(text);
    client.shut_down_sending();
    const int status = client.response().status;
    EXPECT_TRUE(status == 0 || status == 200 || (status >= 400 && status < 500) || status == 501)
        << status;
    EXPECT_TRUE(client.ended());
  }
  EXPECT_EQ(Client(server.port()).ask(get("/health")).status, 200);
  EXPECT_TRUE(server.idle());
}

}  // namespace
}  // namespace walsh
